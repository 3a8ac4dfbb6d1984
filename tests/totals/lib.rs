//! Nothing: the package is there for its test, which is the last one of the workspace.
