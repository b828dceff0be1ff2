//! How two processes find out that they know the same secret, without saying it.
//!
//! ```text
//! hello   "HETCCLbs", version (2), release (6), name (16), nonce (16)              who connects, to a port
//! answer  "HETCCLbs", version (2), status (1), release (6), nonce (16), proof (16)   the port; up to the status the same in all versions
//! proof   (16)                                                                    who connects
//! ```
//!
//! A name is what the secret makes of a fixed word, a proof what it makes of both nonces and the prover's side: SipHash-2-4 with
//! 128 bits, keyed with the secret (Aumasson and Bernstein, 2012). Nonces are new for each connection, so that whoever has
//! listened can't say the same again, and a port that only knows names can't pretend.

use std::io;

use siphasher::sip128::{Hasher128, SipHasher24};
use std::hash::Hasher;

use crate::wire::{Secret, VERSION};

const MAGIC: &[u8; 8] = b"HETCCLbs";
/// A hello up to the version, which all versions have.
const HEAD_BYTES: usize = 10;
pub(crate) const HELLO_BYTES: usize = HEAD_BYTES + 6 + 16 + 16;
/// An answer up to the status, which all versions have.
const SHORT_ANSWER_BYTES: usize = 11;
pub(crate) const ANSWER_BYTES: usize = SHORT_ANSWER_BYTES + 6 + 16 + 16;
pub(crate) const PROOF_BYTES: usize = 16;

/// What a secret is called by those who may not know it.
pub(crate) type Name = [u8; 16];
pub(crate) type Nonce = [u8; 16];

/// This release of hetccl.
pub(crate) const RELEASE: Release = Release([
    number(env!("CARGO_PKG_VERSION_MAJOR")),
    number(env!("CARGO_PKG_VERSION_MINOR")),
    number(env!("CARGO_PKG_VERSION_PATCH")),
]);

const fn number(text: &str) -> u16 {
    match u16::from_str_radix(text, 10) {
        Ok(number) => number,
        Err(_) => panic!("a version has numbers"),
    }
}

/// A release of hetccl: all ranks of a group have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Release([u16; 3]);

impl std::fmt::Display for Release {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

impl Release {
    fn to_bytes(self) -> [u8; 6] {
        let [a, b, c] = self.0.map(u16::to_be_bytes);
        [a[0], a[1], b[0], b[1], c[0], c[1]]
    }

    fn from_bytes(bytes: &[u8]) -> Release {
        Release(std::array::from_fn(|i| u16::from_be_bytes([bytes[2 * i], bytes[2 * i + 1]])))
    }
}

/// How a hello was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Welcome = 0,
    /// Nobody here has that secret.
    Unknown = 1,
    /// The id has been used up: its group is complete.
    Used = 2,
    OtherVersion = 3,
    OtherRelease = 4,
}

/// A hello of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hello {
    OtherVersion(u16),
    OtherRelease(Release),
    For(Name, Nonce),
}

/// An answer to a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    OtherVersion(u16),
    OtherRelease(Release),
    Refused(Status),
    /// The other side's nonce. It has proved that it knows the secret.
    Welcome(Nonce),
}

fn keyed(secret: &Secret, parts: &[&[u8]]) -> [u8; 16] {
    let mut hasher = SipHasher24::new_with_key(secret);
    parts.iter().for_each(|part| hasher.write(part));
    hasher.finish128().as_bytes()
}

/// What a secret is called.
pub(crate) fn name_of(secret: &Secret) -> Name {
    keyed(secret, &[b"name"])
}

/// The proof of the side that connects.
pub(crate) fn proof(secret: &Secret, theirs: &Nonce, own: &Nonce) -> [u8; PROOF_BYTES] {
    keyed(secret, &[b"connects", own, theirs])
}

fn proof_of_port(secret: &Secret, client: &Nonce, port: &Nonce) -> [u8; PROOF_BYTES] {
    keyed(secret, &[b"port", client, port])
}

/// Whether a proof of the side that connects is right, in the same time for all proofs.
pub(crate) fn is_proof(secret: &Secret, client: &Nonce, port: &Nonce, given: &[u8]) -> bool {
    equal(&proof(secret, port, client), given)
}

fn equal(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |bits, (a, b)| bits | (a ^ b)) == 0
}

pub(crate) fn hello(secret: &Secret, nonce: &Nonce) -> [u8; HELLO_BYTES] {
    let mut bytes = [0; HELLO_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..10].copy_from_slice(&VERSION.to_be_bytes());
    bytes[10..16].copy_from_slice(&RELEASE.to_bytes());
    bytes[16..32].copy_from_slice(&name_of(secret));
    bytes[32..].copy_from_slice(nonce);
    bytes
}

/// The hello at the beginning of these bytes; `None` while it is not complete.
///
/// # Errors
/// It is none.
pub(crate) fn read_hello(bytes: &[u8]) -> io::Result<Option<Hello>> {
    let known = bytes.len().min(MAGIC.len());
    if bytes[..known] != MAGIC[..known] {
        return Err(io::Error::other("it does not speak hetccl's protocol"));
    }
    let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
    let version = u16::from_be_bytes([head[8], head[9]]);
    if version != VERSION {
        return Ok(Some(Hello::OtherVersion(version)));
    }
    let Some(bytes) = bytes.first_chunk::<HELLO_BYTES>() else { return Ok(None) };
    let release = Release::from_bytes(&bytes[10..16]);
    if release != RELEASE {
        return Ok(Some(Hello::OtherRelease(release)));
    }
    let word = |from: usize| std::array::from_fn(|i| bytes[from + i]);
    Ok(Some(Hello::For(word(16), word(32))))
}

/// The answer of a port: with a nonce and a proof where the secret is known.
pub(crate) fn answer(
    status: Status,
    known: Option<(&Secret, &Nonce, &Nonce)>,
) -> [u8; ANSWER_BYTES] {
    let mut bytes = [0; ANSWER_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..10].copy_from_slice(&VERSION.to_be_bytes());
    bytes[10] = status as u8;
    bytes[11..17].copy_from_slice(&RELEASE.to_bytes());
    if let Some((secret, client, port)) = known {
        bytes[17..33].copy_from_slice(port);
        bytes[33..].copy_from_slice(&proof_of_port(secret, client, port));
    }
    bytes
}

/// The answer in these bytes; `None` while it is not complete.
///
/// # Errors
/// It is none, or the port does not know the secret.
pub(crate) fn read_answer(
    bytes: &[u8],
    secret: &Secret,
    nonce: &Nonce,
) -> io::Result<Option<Answer>> {
    let stranger = || io::Error::other("something else answers there, not hetccl");
    let known = bytes.len().min(MAGIC.len());
    if bytes[..known] != MAGIC[..known] {
        return Err(stranger());
    }
    let Some(head) = bytes.first_chunk::<SHORT_ANSWER_BYTES>() else { return Ok(None) };
    let version = u16::from_be_bytes([head[8], head[9]]);
    if version != VERSION {
        return Ok(Some(Answer::OtherVersion(version)));
    }
    let Some(bytes) = bytes.first_chunk::<ANSWER_BYTES>() else { return Ok(None) };
    let port: Nonce = std::array::from_fn(|i| bytes[17 + i]);
    match head[10] {
        0 if equal(&proof_of_port(secret, nonce, &port), &bytes[33..]) => {
            Ok(Some(Answer::Welcome(port)))
        }
        0 => Err(io::Error::other("what answers there does not know this job's secret")),
        1 => Ok(Some(Answer::Refused(Status::Unknown))),
        2 => Ok(Some(Answer::Refused(Status::Used))),
        4 => Ok(Some(Answer::OtherRelease(Release::from_bytes(&bytes[11..17])))),
        _ => Err(stranger()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: Secret = [7; 16];
    const CLIENT: Nonce = [1; 16];
    const PORT: Nonce = [2; 16];

    #[test]
    fn both_sides_prove_what_they_know() {
        let hello = hello(&SECRET, &CLIENT);
        let read = read_hello(&hello).unwrap();
        assert_eq!(read, Some(Hello::For(name_of(&SECRET), CLIENT)));
        assert!(!hello.windows(16).any(|bytes| bytes == SECRET), "the secret is not said");
        let answer = answer(Status::Welcome, Some((&SECRET, &CLIENT, &PORT)));
        let read = read_answer(&answer, &SECRET, &CLIENT).unwrap();
        assert_eq!(read, Some(Answer::Welcome(PORT)));
        let proof = proof(&SECRET, &PORT, &CLIENT);
        assert!(is_proof(&SECRET, &CLIENT, &PORT, &proof));
    }

    #[test]
    fn what_was_said_to_others_proves_nothing() {
        let said = answer(Status::Welcome, Some((&SECRET, &CLIENT, &PORT)));
        let error = read_answer(&said, &SECRET, &[3; 16]).unwrap_err().to_string();
        assert!(error.contains("does not know"), "{error}");
        let said = proof(&SECRET, &PORT, &CLIENT);
        assert!(!is_proof(&SECRET, &CLIENT, &[3; 16], &said), "a new nonce wants a new proof");
        assert!(!is_proof(&[8; 16], &CLIENT, &PORT, &said), "another secret, another proof");
        let mirrored = &answer(Status::Welcome, Some((&SECRET, &CLIENT, &PORT)))[33..];
        assert!(
            !is_proof(&SECRET, &CLIENT, &PORT, mirrored),
            "the port's proof is not the client's"
        );
    }

    #[test]
    fn other_versions_and_releases_are_named_as_soon_as_they_show() {
        let mut bytes = hello(&SECRET, &CLIENT);
        assert_eq!(read_hello(&bytes[..9]).unwrap(), None);
        bytes[15] += 1;
        let Some(Hello::OtherRelease(release)) = read_hello(&bytes).unwrap() else { panic!() };
        assert_ne!(release.to_string(), RELEASE.to_string());
        bytes[9] = 99;
        assert_eq!(read_hello(&bytes[..10]).unwrap(), Some(Hello::OtherVersion(99)));
        assert!(read_hello(b"GET / HTTP").is_err());
        let mut bytes = answer(Status::OtherRelease, None);
        assert_eq!(
            read_answer(&bytes, &SECRET, &CLIENT).unwrap(),
            Some(Answer::OtherRelease(RELEASE))
        );
        bytes[9] = 99;
        let read = read_answer(&bytes[..11], &SECRET, &CLIENT).unwrap();
        assert_eq!(read, Some(Answer::OtherVersion(99)));
    }
}
