//! `ListBody`: the body of a list, sent in chunks that are read from a snapshot on demand. Only one chunk is in memory
//! at a time, regardless of the length of the list.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Frame;

use crate::registry::reader::verbs::Items;
use crate::registry::scheme::Row;
use crate::registry::scheme::codec;
use crate::storage::{KeyRange, Stored};

/// Approximate size of a chunk in bytes; chunks may be larger by one object.
const CHUNK_BYTES: usize = 128 * 1024;

/// The body of a list.
#[derive(Debug)]
pub(crate) struct ListBody {
    items: Items,
    form: ItemForm,
    /// The JSON after the items of the list.
    tail: String,
    /// The part of the next chunk that has been written so far; initially the head of the list.
    chunk: Vec<u8>,
    /// Number of items sent, if they come from a page, or the last key sent, if they come from a snapshot.
    sent: Sent,
    ended: bool,
}

/// Encoding of each item.
#[derive(Debug)]
pub(crate) enum ItemForm {
    /// Objects without kind and apiVersion, as in built-in lists.
    Bare,
    /// Complete objects of a custom resource, with this prefix.
    Whole(Arc<str>),
    /// Only the metadata of each object, after this prefix.
    Metadata(String),
}

impl ItemForm {
    /// Returns the encoding of complete objects of the row.
    pub(crate) fn of(row: &Row) -> Self {
        match row.is_custom() {
            true => Self::Whole(Arc::clone(&row.head)),
            false => Self::Bare,
        }
    }
}

#[derive(Debug)]
enum Sent {
    Nothing,
    Items(usize),
    UpTo(String),
}

impl ListBody {
    /// Creates a list that begins with `head` and ends with `tail`.
    pub(crate) fn new(head: Vec<u8>, tail: String, form: ItemForm, items: Items) -> Self {
        Self {
            items,
            tail,
            form,
            chunk: head,
            sent: Sent::Nothing,
            ended: false,
        }
    }

    /// Returns the whole list.
    pub(crate) fn collect(mut self) -> Bytes {
        let mut all = Vec::new();
        while let Some(chunk) = self.next_chunk() {
            all.extend_from_slice(&chunk);
        }
        all.into()
    }

    /// Returns the whole list if it fits into one chunk; otherwise the first chunk is kept for later.
    pub(crate) fn whole_if_small(&mut self) -> Option<Bytes> {
        self.fill();
        if self.ended {
            Some(std::mem::take(&mut self.chunk).into())
        } else {
            None
        }
    }

    fn next_chunk(&mut self) -> Option<Bytes> {
        if !self.ended {
            self.fill();
        }
        if self.chunk.is_empty() {
            None
        } else {
            Some(std::mem::take(&mut self.chunk).into())
        }
    }

    /// Writes items until the chunk is full or the list ends.
    fn fill(&mut self) {
        if self.chunk.len() >= CHUNK_BYTES {
            return;
        }
        let mut sent_any = !matches!(self.sent, Sent::Nothing);
        if sent_any {
            // After the first chunk, reserves enough for a full chunk, which may exceed `CHUNK_BYTES` by one object.
            self.chunk.reserve(CHUNK_BYTES + CHUNK_BYTES / 8);
        }
        let chunk = &mut self.chunk;
        let form = &self.form;
        let mut write = |stored: &Stored| {
            if std::mem::replace(&mut sent_any, true) {
                chunk.push(b',');
            }
            match form {
                ItemForm::Bare => codec::write_item(stored, stored.revision, chunk),
                ItemForm::Whole(head) => codec::write_with_head(head, stored, stored.revision, chunk),
                ItemForm::Metadata(head) => codec::write_metadata(head, stored, stored.revision, chunk),
            }
            chunk.len() >= CHUNK_BYTES
        };
        let mut full = false;
        match &self.items {
            Items::Page(items) => {
                let mut at = if let Sent::Items(sent) = self.sent { sent } else { 0 };
                while let (false, Some(stored)) = (full, items.get(at)) {
                    full = write(stored);
                    at += 1;
                }
                self.sent = Sent::Items(at);
            }
            Items::All(all) => {
                let (snapshot, range, filter) = &**all;
                let rest: KeyRange = match &self.sent {
                    // Continues at the smallest key greater than the last one.
                    Sent::UpTo(key) => range.clone().from(format!("{key}\0")),
                    Sent::Nothing | Sent::Items(_) => range.clone(),
                };
                let mut last = None;
                for stored in snapshot.range(&rest).filter(|it| filter.selects(it)) {
                    full = write(stored);
                    last = Some(&stored.key);
                    if full {
                        break;
                    }
                }
                if let Some(key) = last {
                    self.sent = Sent::UpTo(key.as_str().to_owned());
                }
            }
        }
        if !full {
            self.chunk.extend_from_slice(self.tail.as_bytes());
            self.ended = true;
        }
    }
}

impl http_body::Body for ListBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.next_chunk().map(|chunk| Ok(Frame::data(chunk))))
    }
}
