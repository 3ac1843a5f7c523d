//! The encoding of values as bytes.

use std::fmt::Display;
use std::str::FromStr;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The encoding of values of a type as the data of nodes.
///
/// ```
/// use ironkeeper_recipes::model::Codec;
///
/// /// Four bytes, the largest first.
/// #[derive(Clone, Debug)]
/// struct BigEndian;
///
/// impl Codec<u32> for BigEndian {
///     fn encode(&self, value: &u32) -> Result<Vec<u8>, String> {
///         Ok(value.to_be_bytes().to_vec())
///     }
///
///     fn decode(&self, data: &[u8]) -> Result<u32, String> {
///         Ok(u32::from_be_bytes(data.try_into().map_err(|_| "not four bytes".to_owned())?))
///     }
/// }
/// ```
pub trait Codec<T>: Send + Sync {
    /// Returns the bytes of a value, or the reason why it cannot be encoded.
    fn encode(&self, value: &T) -> Result<Vec<u8>, String>;

    /// Returns the value of the bytes, or the reason why they cannot be decoded.
    fn decode(&self, data: &[u8]) -> Result<T, String>;
}

/// JSON, encoded by serde.
#[derive(Clone, Copy, Debug, Default)]
pub struct Json;

impl<T: Serialize + DeserializeOwned> Codec<T> for Json {
    fn encode(&self, value: &T) -> Result<Vec<u8>, String> {
        serde_json::to_vec(value).map_err(|error| error.to_string())
    }

    fn decode(&self, data: &[u8]) -> Result<T, String> {
        serde_json::from_slice(data).map_err(|error| error.to_string())
    }
}

/// Plain text, as [`Display`] writes and [`FromStr`] reads it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Text;

impl<T: Display + FromStr<Err: Display>> Codec<T> for Text {
    fn encode(&self, value: &T) -> Result<Vec<u8>, String> {
        Ok(value.to_string().into_bytes())
    }

    fn decode(&self, data: &[u8]) -> Result<T, String> {
        let text = std::str::from_utf8(data).map_err(|error| error.to_string())?;
        text.parse().map_err(|error: T::Err| error.to_string())
    }
}
