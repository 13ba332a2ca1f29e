//! watcher
