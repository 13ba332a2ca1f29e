//! A path built on the stack during a walk over a value; it is formatted only for an error.

/// Position of a walk.
#[derive(Clone, Copy, Debug)]
pub(super) enum Path<'a> {
    /// The value at which the walk began.
    Root,
    /// In a field of a map.
    Field(&'a Path<'a>, &'a str),
    /// In an item of a list.
    Index(&'a Path<'a>, usize),
    /// An entry of a map, written in brackets.
    Key(&'a Path<'a>, &'a str),
}

impl<'a> Path<'a> {
    pub(super) fn field(&'a self, name: &'a str) -> Path<'a> {
        Path::Field(self, name)
    }

    pub(super) fn index(&'a self, index: usize) -> Path<'a> {
        Path::Index(self, index)
    }

    pub(super) fn key(&'a self, key: &'a str) -> Path<'a> {
        Path::Key(self, key)
    }

    pub(super) fn is_root(&self) -> bool {
        matches!(self, Path::Root)
    }

    /// `spec.list[0].name`; empty at the root.
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
