"""Finds the paths of a store on the disks of this machine, by the configuration. It makes nothing and locks nothing."""

from __future__ import annotations

from pathlib import Path

from broker.config import BrokerConfig
from broker.store.directory import DirectoryFiles, FileDirectory, LogDirectory
from broker.store.files import Files
from broker.store.scattered import EPOCHS, LOG, EpochPlace, LogFolder, ScatteredFiles


def store_files(config: BrokerConfig) -> Files:
    """Return the store as one tree, wherever its log and its epoch file are."""
    root = Path(config.store_path_root_dir)
    log, epochs = log_paths(config), Path(config.store_path_epoch_file).expanduser()
    found = None
    if config.store_path_epoch_file and epochs.resolve() != (root / EPOCHS).resolve():
        found = EpochPlace(str(epochs), FileDirectory(epochs.parent), epochs.name)
    if not log and found is None:
        return DirectoryFiles(root)
    read_only = {Path(path).expanduser() for path in config.read_only_log_paths}
    return ScatteredFiles(
        DirectoryFiles(root),
        [LogFolder(str(path), LogDirectory(path, made=path not in read_only), path not in read_only) for path in log],
        found, file_bytes=config.mapped_file_size_commit_log, full_ratio=config.disk_space_clean_forcibly_ratio / 100,
        within=any(path.resolve() == (root / LOG).resolve() for path in log))


def log_paths(config: BrokerConfig) -> list[Path]:
    """Return the directories of the log; []: it is in the store's."""
    paths = [Path(path).expanduser() for path in (*config.log_paths, *config.read_only_log_paths)]
    root = Path(config.store_path_root_dir)
    found = list(dict.fromkeys(paths))
    return [] if [path.resolve() for path in found] == [(root / LOG).resolve()] else found
