"""Messages of stores as files or in another store, run by run: each message once, whatever ends a run.

from rmqstore.export import ExportWish, export_messages

done = export_messages("/data/rocketmq/store", "/data/orders", ExportWish(topics=("orders",)))
"""

from rmqstore.export.run import ExportDone, export_messages
from rmqstore.export.wish import ExportWish
from rmqstore.snapshot.search.window import Window

__all__ = ["ExportDone", "ExportWish", "Window", "export_messages"]
