"""The note of deleted topics is written before anything of them is removed."""

from rmqstore.directory.deleted_topics import load_deleted_topics, note_path
from rmqstore.files.filesystem import FileSystem, directory_of
from rmqstore.files.replace import keep_copy, replace_file
from rmqstore.formats.deleted_topics import DeletedTopics, deleted_topics_text


def save_deleted_topics(fs: FileSystem, root: str, topics: DeletedTopics) -> None:
    """Makes `topics` what is noted, durably; of an old note that could not be read whole a copy is kept, as of the
    tables of config/.  Raises OSError; then the old note is still there.
    """
    path = note_path(root)
    if load_deleted_topics(fs, root)[1]:
        keep_copy(fs, path)
    if topics:
        fs.make_directories(directory_of(path))
        replace_file(fs, path, deleted_topics_text(topics).encode(errors="replace"))
    elif fs.exists(path):
        fs.remove(path)
        fs.sync_directory(directory_of(path))
