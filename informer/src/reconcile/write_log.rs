//! `WriteLog`: the writes of a reconcile or of a request.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::collection::Collection;
use super::write::Write;
use crate::ObjectKey;

/// The writes of a reconcile or of a request, merged by object.
#[derive(Default)]
pub(super) struct WriteLog {
    /// The writes to each object, in the order of the first write.
    objects: Vec<Vec<Write>>,
    /// Positions in `objects`. The map is never iterated.
    places: HashMap<(Collection, ObjectKey), usize, RandomState>,
}

impl WriteLog {
    pub(super) fn add(&mut self, write: Write) {
        let object = (write.collection.clone(), write.key.clone());
        let place = *self.places.entry(object).or_insert(self.objects.len());
        if place == self.objects.len() {
            self.objects.push(Vec::new());
        }
        Write::merge(&mut self.objects[place], write);
    }

    pub(super) fn into_writes(self) -> Vec<Write> {
        self.objects.into_iter().flatten().collect()
    }
}
