"""Planted bugs of a store whose log or epoch file stands elsewhere: to pass over a log loses what is in it."""

from __future__ import annotations

from typing import Final

from tests.harness.planting import Planted

PLACES: Final = "broker/store/scattered.py"
TESTS: Final = "tests/broker/store/test_scattered.py::"
CRASHES: Final = "tests/broker/store/test_crashes.py::test_a_log_in_folders_of_its_own_survives_as_well"
FOLDERS: Final = "tests/broker/store/test_directory.py::"
RAFT_FOLDERS: Final = "tests/raft/storage/test_directory.py::"

PLANTED: Final = (
    Planted("a log in the store's directory is passed over", PLACES,
            "        if self.log and not self.within and _files_of_a_log(self.root.list(LOG)):\n",
            "        if False:\n",
            (TESTS + "test_a_log_in_the_store_s_directory_is_not_passed_over",)),
    Planted("epochs in the store's directory are passed over", PLACES,
            "        if self.epochs is not None and self.root.exists(EPOCHS):\n", "        if False:\n",
            (TESTS + "test_epochs_in_the_store_s_directory_are_not_passed_over",)),
    Planted("an empty log is begun where queues tell of another", PLACES,
            "        if self.log and not _files_of_a_log(self.list(LOG)) and self.root.list(QUEUES):\n",
            "        if False:\n", (TESTS + "test_a_java_log_that_is_missing_is_known_by_its_queues",)),
    Planted("a log that was cut is read as it was", "broker/store/commitlog.py",
            "        self._slabs.clear()\n        while len", "        while len",
            ("tests/broker/store/test_commitlog.py::test_slabs_are_those_of_the_log_as_it_is",)),
    Planted("a log ends where a disk is missing", "broker/store/commitlog.py",
            "        if self._apart and sure > (", "        if False and sure > (",
            (TESTS + "test_a_last_file_that_is_missing_stops_the_start",)),
    Planted("of a file that is there twice the first one is taken", PLACES, "        if twice:\n",
            "        if False:\n",
            (TESTS + "test_a_file_that_is_in_two_folders_stops_the_start",)),
    Planted("one folder of a log is synced", PLACES,
            "            for folder in self.log:\n                folder.files.sync_dir(\"\")\n",
            "            self.log[0].files.sync_dir(\"\")\n", (CRASHES,)),
    Planted("new files go to folders that are read only", PLACES,
            "(folder for folder in self.log if folder.writable)", "(folder for folder in self.log)",
            (TESTS + "test_folders_that_are_read_only_or_full_get_no_new_file",)),
    Planted("folders take turns in the order of the file", PLACES,
            "sorted((folder for folder in self.log if folder.writable), key=lambda folder: folder.path)",
            "[folder for folder in self.log if folder.writable]",
            (TESTS + "test_new_files_go_round_the_folders_as_in_java",)),
    Planted("the store's disk alone is tried", PLACES,
            "        if not self.log:\n            return (self.root,)\n", "        return (self.root,)\n",
            (TESTS + "test_the_disk_that_the_log_is_on_is_tried_too",)),
    Planted("two brokers have one log", "broker/store/directory.py",
            "            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)\n", "            pass\n",
            (TESTS + "test_no_two_brokers_have_one_log",)),
    # --- names of folders
    Planted("a broker's new folders are not synced", "remoting/daemon/files.py",
            "                raise\n        _sync_folder(made.parent)\n", "                raise\n",
            (FOLDERS + "test_every_new_folder_of_a_store_is_on_disk",)),
    Planted("of a file's new folders the last one is synced", "remoting/daemon/files.py",
            "                raise\n        _sync_folder(made.parent)\n",
            "                raise\n    _sync_folder(path.parent)\n",
            ("tests/remoting/daemon/test_files.py::test_every_new_folder_above_a_file_is_on_disk",)),
    Planted("a folder that a killed process made is taken for durable", "remoting/daemon/files.py",
            "        _sync_folder(there.parent)\n", "        pass\n",
            (FOLDERS + "test_folders_of_a_killed_process_are_on_disk_after_the_next_one",)),
    Planted("of a data directory's new folders the last one is synced", "raft/storage/directory.py",
            "                raise\n        _sync_directory(made.parent)\n",
            "                raise\n    _sync_directory(path.parent)\n",
            (RAFT_FOLDERS + "test_every_new_folder_above_a_data_directory_is_on_disk",)),
    Planted("a data directory that a killed process made is taken for durable", "raft/storage/directory.py",
            "        _sync_directory(there.parent)\n", "        pass\n",
            (RAFT_FOLDERS + "test_folders_of_a_killed_process_are_on_disk_after_the_next_one",)),
)
