//! JSON objects that are read as objects only.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// An object. What serde derives takes a list as well, of the members in their order.
#[derive(Debug, Default)]
pub(in crate::server) struct Object<T>(pub(in crate::server) T);

/// What can be an [`Object`].
pub(in crate::server) trait Members {
    /// What is said to whom it is missing.
    const EXPECTED: &'static str;
}

impl<'de, T: Deserialize<'de> + Members> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Object<T>, D::Error> {
        struct Map<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de> + Members> Visitor<'de> for Map<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(T::EXPECTED)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }

        from.deserialize_map(Map(PhantomData))
    }
}
