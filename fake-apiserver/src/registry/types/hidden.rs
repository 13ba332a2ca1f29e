//! `Hidden`: facts of a body that the object read from it no longer shows, but Go's values do.

/// Facts of a body that the object read from it no longer shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hidden {
    /// Fields of the whole object with an empty list or map in them that was left out. To `reflect.DeepEqual` it
    /// differs from none, which is what storage makes of it.
    emptied: Vec<&'static str>,
    /// Set if the labels are the template's by default: the same map in Go, so that what is added to one is in both.
    pub(crate) shares_labels: bool,
}

impl Hidden {
    /// Notes an empty list or map within a field of the whole object.
    pub(crate) fn left_out(&mut self, field: &'static str) {
        if !self.emptied.contains(&field) {
            self.emptied.push(field);
        }
    }

    /// Returns `true` if an empty list or map was left out of a field of the whole object.
    pub(crate) fn has_emptied(&self, field: &str) -> bool {
        self.emptied.contains(&field)
    }
}

/// Nothing, as of an object that the server has made.
pub(crate) static NONE: Hidden = Hidden {
    emptied: Vec::new(),
    shares_labels: false,
};

impl Default for &Hidden {
    fn default() -> Self {
        &NONE
    }
}
