//! A model that is a process of its own, in any language: `docs/workers.md` is the protocol.
