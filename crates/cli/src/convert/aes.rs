//! Passwords as Pgpool-II's `pg_enc` encrypts them: AES-256 in CBC mode with PKCS #7 padding. Key and
//! initialization vector are made from the text of `.pgpoolkey` with SHA-1, as OpenSSL's
//! `EVP_BytesToKey` does without salt.

use aws_lc_rs::cipher::{AES_256, DecryptionContext, PaddedBlockDecryptingKey, UnboundCipherKey};
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use aws_lc_rs::iv::FixedLength;

const KEY_LEN: usize = 32;
const IV_LEN: usize = 16;

/// Decrypts a password. `None`: the key is a different one.
pub(super) fn decrypt(key: &str, encrypted: &[u8]) -> Option<String> {
    let derived = derived(key);
    let (key, iv) = derived.split_at_checked(KEY_LEN)?;
    let iv: [u8; IV_LEN] = iv.get(..IV_LEN)?.try_into().ok()?;
    let key = UnboundCipherKey::new(&AES_256, key).ok()?;
    let key = PaddedBlockDecryptingKey::cbc_pkcs7(key).ok()?;
    let mut bytes = encrypted.to_vec();
    let context = DecryptionContext::Iv128(FixedLength::from(iv));
    let plain = key.decrypt(&mut bytes, context).ok()?;
    String::from_utf8(plain.to_vec()).ok()
}

/// Each SHA-1 is that of the one before and the text.
fn derived(text: &str) -> Vec<u8> {
    let (mut all, mut last) = (Vec::new(), Vec::new());
    while all.len() < KEY_LEN + IV_LEN {
        last.extend_from_slice(text.as_bytes());
        last = digest(&SHA1_FOR_LEGACY_USE_ONLY, &last).as_ref().to_vec();
        all.extend_from_slice(&last);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with pg_enc of Pgpool-II 4.3.5.
    #[test]
    fn passwords_of_pg_enc_are_decrypted() {
        let cases: [(&str, &[u8]); 2] = [
            (
                "secret",
                &[
                    0xfd, 0x8a, 0x1c, 0xc2, 0xb2, 0x89, 0xad, 0x9f, 0xb9, 0x03, 0x3a, 0xa8, 0x39,
                    0x8c, 0xbb, 0x21,
                ],
            ),
            (
                "0123456789abcdef",
                &[
                    0x5f, 0xff, 0xba, 0x0c, 0x41, 0xca, 0xd9, 0xef, 0xda, 0x5d, 0xb8, 0x50, 0x7f,
                    0x2f, 0x56, 0x3d, 0xc7, 0x3e, 0x15, 0x04, 0x49, 0xda, 0xc6, 0xc3, 0x84, 0x56,
                    0x59, 0x96, 0x16, 0xd5, 0xdb, 0xcc,
                ],
            ),
        ];
        for (plain, encrypted) in cases {
            assert_eq!(decrypt("my secret key", encrypted).as_deref(), Some(plain));
            assert_eq!(decrypt("another key", encrypted), None);
            assert_eq!(decrypt("my secret key", &encrypted[1..]), None);
        }
        assert_eq!(decrypt("", &[]), None);
    }
}
