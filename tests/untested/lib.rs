//! Empty: the package exists only for its test target.
