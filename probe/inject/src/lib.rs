//! libpfp_inject: a library that runtimes load by an environment variable, and which measures
//! what they tell it.

mod ompt;
