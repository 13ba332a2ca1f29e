//! What a test author touches.
