//! Access control lists.

use std::borrow::Cow;

use crate::jute::{DecodeError, Put, Reader};

/// Permission bits. Unknown bits are stored unchanged, as Apache does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Perms(pub i32);

impl Perms {
    /// Reading data and listing children.
    pub const READ: Perms = Perms(1);
    /// Setting data.
    pub const WRITE: Perms = Perms(2);
    /// Creating children.
    pub const CREATE: Perms = Perms(4);
    /// Deleting children.
    pub const DELETE: Perms = Perms(8);
    /// Setting the access control list.
    pub const ADMIN: Perms = Perms(16);
    /// All permissions.
    pub const ALL: Perms = Perms(31);

    /// Returns whether at least one of the wanted bits is set.
    pub fn allows(self, wanted: Perms) -> bool {
        self.0 & wanted.0 != 0
    }

    /// Returns the permissions in either set.
    pub fn or(self, other: Perms) -> Perms {
        Perms(self.0 | other.0)
    }
}

/// One entry: the permissions of one identity, which is a scheme and an id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acl {
    /// The permissions that the entry grants.
    pub perms: Perms,
    /// The scheme that interprets the id: `world`, `auth`, `digest`, `ip` or `super`.
    pub scheme: String,
    /// The id that is granted the permissions; its form depends on the scheme.
    pub id: String,
}

impl Acl {
    /// Creates an entry.
    pub fn new(perms: Perms, scheme: &str, id: &str) -> Acl {
        Acl { perms, scheme: scheme.to_owned(), id: id.to_owned() }
    }

    /// Writes ids as plain UTF-8, also where Java writes surrogates: this form is read back from
    /// our log and by other servers from theirs, and no server can decode the surrogates.
    pub fn encode(&self, out: &mut impl Put) {
        out.put_i32(self.perms.0);
        out.put_buf(Some(self.scheme.as_bytes()));
        out.put_buf(Some(self.id.as_bytes()));
    }
}

/// Returns the ACL of most nodes: all permissions for all clients.
pub fn open() -> Vec<Acl> {
    vec![Acl::new(Perms::ALL, "world", "anyone")]
}

/// The elements of [`open`], encoded.
pub const OPEN_ENCODED: &[u8] = b"\x00\x00\x00\x1f\x00\x00\x00\x05world\x00\x00\x00\x06anyone";

/// An entry that borrows its strings.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AclRef<'a> {
    /// The permissions that the entry grants.
    pub perms: Perms,
    /// The scheme that interprets the id.
    pub scheme: Cow<'a, str>,
    /// The id that is granted the permissions.
    pub id: Cow<'a, str>,
}

impl AclRef<'_> {
    /// Copies the entry.
    pub fn to_owned(&self) -> Acl {
        Acl { perms: self.perms, scheme: self.scheme.to_string(), id: self.id.to_string() }
    }
}

/// A list inside a record. The encoding is checked on construction, and the entries are decoded by
/// `iter`. Null strings read as empty.
#[derive(Clone, Copy, Debug)]
pub struct AclVec<'a> {
    count: usize,
    /// The encoded elements, without the count.
    raw: &'a [u8],
}

impl<'a> AclVec<'a> {
    /// The list without entries.
    pub const EMPTY: AclVec<'static> = AclVec { count: 0, raw: &[] };
    /// The list that grants all permissions to all clients.
    pub const OPEN: AclVec<'static> = AclVec { count: 1, raw: OPEN_ENCODED };

    /// Reads a list. `None` is a null list.
    pub fn decode(reader: &mut Reader<'a>) -> Result<Option<AclVec<'a>>, DecodeError> {
        let Some(count) = reader.count(12)? else { return Ok(None) };
        let before = reader.rest();
        for _ in 0..count {
            reader.i32()?;
            reader.buf()?;
            reader.buf()?;
        }
        let raw = &before[..before.len() - reader.rest().len()];
        Ok(Some(AclVec { count, raw }))
    }

    /// Appends the encoding.
    pub fn encode(&self, out: &mut impl Put) {
        out.put_len(self.count);
        out.put_raw(self.raw);
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether the list has no entries.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the encoded elements. Equal bytes mean equal lists, so they serve as a cheap key.
    pub fn raw(&self) -> &'a [u8] {
        self.raw
    }

    /// Decodes the entries. Null strings read as empty.
    pub fn iter(&self) -> impl Iterator<Item = AclRef<'a>> + use<'a> {
        let mut reader = Reader::new(self.raw);
        (0..self.count).map_while(move |_| {
            let perms = Perms(reader.i32().ok()?);
            let scheme = reader.opt_str().ok()?.unwrap_or_default();
            let id = reader.opt_str().ok()?.unwrap_or_default();
            Some(AclRef { perms, scheme, id })
        })
    }

    /// Returns whether an entry of one of these schemes has a null id. Lists that this server
    /// encodes have none.
    pub fn has_null_id(&self, schemes: &[&str]) -> bool {
        let mut reader = Reader::new(self.raw);
        (0..self.count).any(|_| {
            let _ = reader.i32();
            let scheme = reader.opt_str().ok().flatten();
            let id = reader.buf().ok().flatten();
            id.is_none() && scheme.is_some_and(|scheme| schemes.contains(&&*scheme))
        })
    }

    /// Copies the entries.
    pub fn to_vec(&self) -> Vec<Acl> {
        self.iter().map(|acl| acl.to_owned()).collect()
    }
}

/// Encodes a list with its count.
pub fn encode_list(list: &[Acl], out: &mut impl Put) {
    out.put_len(list.len());
    for acl in list {
        acl.encode(out);
    }
}

/// Encodes a list for a reply to a client. As Apache does, it writes characters above U+FFFF as
/// surrogates.
pub fn encode_reply(list: &[Acl], out: &mut impl Put) {
    out.put_len(list.len());
    for acl in list {
        out.put_i32(acl.perms.0);
        out.put_str(&acl.scheme);
        out.put_str(&acl.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_constant_is_the_encoding_of_the_open_list() {
        let mut bytes = Vec::new();
        encode_list(&open(), &mut bytes);
        assert_eq!(&bytes[4..], OPEN_ENCODED);
        let list = AclVec::decode(&mut Reader::new(&bytes)).unwrap().unwrap();
        assert_eq!(list.to_vec(), open());
        assert_eq!(list.raw(), AclVec::OPEN.raw());
    }

    #[test]
    fn an_id_outside_of_the_basic_plane_survives_being_written_and_read() {
        let list = vec![Acl::new(Perms::ALL, "digest", "\u{1f600}:hash")];
        let mut bytes = Vec::new();
        encode_list(&list, &mut bytes);
        let read = AclVec::decode(&mut Reader::new(&bytes)).unwrap().unwrap();
        assert_eq!(read.to_vec(), list);
    }

    #[test]
    fn a_count_without_elements_is_refused() {
        let mut bytes = Vec::new();
        bytes.put_i32(1_000_000);
        assert!(AclVec::decode(&mut Reader::new(&bytes)).is_err());
    }
}
