//! Objects as rows of a Table.
