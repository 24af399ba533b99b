"""A store's figures as one HTML page that needs nothing else: it is mailed around, and opened without a network."""

from rmqstore.files.replace import output_path, replace_output
from rmqstore.report.collect import Wishes, collect
from rmqstore.report.figures import Figures
from rmqstore.report.page import cards_of, page_of

__all__ = ["Figures", "Wishes", "cards_of", "collect", "output_path", "page_of", "replace_output"]
