//! A model that is on another inference server.
