//! One binary, a module a topic.
