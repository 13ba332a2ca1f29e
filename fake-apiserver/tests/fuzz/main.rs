//! Random patches, applied objects, schemas, expressions, encodings and selectors: every response is an object or a
//! failure in Kubernetes' format, the server does not panic, a refused write changes nothing, and errors of limits have
//! the expected messages. Rules of CRDs are also tested with examples. `HOSTILE_TIMES=50` multiplies the number of
//! random inputs by 50; inputs that once failed are test cases.

#[path = "../hostile/ask.rs"]
#[allow(dead_code, reason = "the hostile tests use the rest")]
mod ask;
#[path = "../hostile/trial.rs"]
#[allow(dead_code, reason = "the hostile tests use the rest")]
mod hostile;
#[path = "../hostile/mutation.rs"]
#[allow(dead_code, reason = "the hostile tests use the rest")]
mod mutation;
mod apply;
#[cfg(feature = "cel")]
mod expressions;
mod limits;
mod patches;
mod protobuf;
mod schemas;
mod selectors;
mod trial;
mod values;
