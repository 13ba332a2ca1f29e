//! A path that is built on the stack while a value is traversed. It is only formatted for errors.

/// Position in a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Path<'a> {
    /// The value itself.
    Root,
    /// A field of a map.
    Field(&'a Path<'a>, &'a str),
    /// An item of a list.
    Index(&'a Path<'a>, usize),
    /// An entry of a map, printed with a leading dot even at the root.
    Entry(&'a Path<'a>, &'a str),
    /// An entry of a map, printed in brackets.
    Key(&'a Path<'a>, &'a str),
}

impl<'a> Path<'a> {
    pub(super) fn field(&'a self, name: &'a str) -> Path<'a> {
        Path::Field(self, name)
    }

    pub(super) fn index(&'a self, index: usize) -> Path<'a> {
        Path::Index(self, index)
    }

    pub(super) fn entry(&'a self, name: &'a str) -> Path<'a> {
        Path::Entry(self, name)
    }

    pub(super) fn key(&'a self, key: &'a str) -> Path<'a> {
        Path::Key(self, key)
    }

    pub(super) fn is_root(&self) -> bool {
        matches!(self, Path::Root)
    }

    /// Formats the path like `spec.list[0].name`; returns an empty string for the root.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) {
        match self {
            Path::Root => {}
            Path::Field(parent, name) => {
                parent.write(out);
                if !out.is_empty() {
                    out.push('.');
                }
                out.push_str(name);
            }
            Path::Entry(parent, name) => {
                parent.write(out);
                out.push('.');
                out.push_str(name);
            }
            Path::Key(parent, key) => {
                parent.write(out);
                out.push_str(&format!("[{key}]"));
            }
            Path::Index(parent, index) => {
                parent.write(out);
                out.push_str(&format!("[{index}]"));
            }
        }
    }
}
