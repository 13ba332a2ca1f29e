//! What holds for the whole workspace, and `testkit` as its users see it.

mod tidy;
