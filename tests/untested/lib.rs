//! Nothing: the package is there for its test target.
