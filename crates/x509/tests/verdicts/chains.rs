//! Chains of certificates, in the language of `openssl.rs`. The tests of `net` play them in real
//! handshakes.
//!
//! The first column has `C` if the certificate is valid for a client and `S` if it is valid for a
//! server.

pub(crate) const CHAINS: &[(&str, &str)] = &[
    // Version 1, as in PostgreSQL's manual.
    ("CS", "own"),
    ("CS", "root | leaf < root"),
    ("CS", "root ca | leaf < root"),
    ("--", "root | middle < root | leaf < middle"),
    ("--", "root ca | middle < root | leaf < middle"),
    ("--", "root ca kept | middle < root trusted | leaf < middle"),
    ("--", "root ca | own"),
    // Roots of version 3.
    ("CS", "root ca | leaf < root basicConstraints=CA:FALSE"),
    ("CS", "root basicConstraints=CA:TRUE | leaf < root basicConstraints=CA:FALSE"),
    ("--", "root basicConstraints=CA:FALSE | leaf < root"),
    ("--", "root basicConstraints=critical,CA:FALSE | leaf < root basicConstraints=CA:FALSE"),
    ("--", "root subjectKeyIdentifier=hash | leaf < root"),
    ("CS", "root keyUsage=keyCertSign | leaf < root"),
    ("--", "root keyUsage=digitalSignature | leaf < root"),
    ("--", "root basicConstraints=CA:TRUE keyUsage=digitalSignature | leaf < root"),
    ("--", "root basicConstraints=CA:TRUE keyUsage=cRLSign | leaf < root"),
    ("CS", "root basicConstraints=CA:TRUE keyUsage=digitalSignature,keyCertSign | leaf < root"),
    ("--", "root ca days=-20..-1 | leaf < root"),
    ("--", "root ca days=1..20 | leaf < root"),
    ("--", "root ca | other ca | leaf < other"),
    ("--", "root ca | other subject=/CN=root kept ca | leaf < other"),
    ("CS", "root ca | twin subject=/CN=ROOT as=root kept ca | leaf < twin"),
    (
        "CS",
        "root subject=/O=Weir__Test/CN=r ca | twin as=root kept ca subject=/O=weir_test/CN=R | \
            leaf < twin",
    ),
    ("--", "root ca | twin subject=/CN=root/O=x as=root kept ca | leaf < twin"),
    // Self-signed certificates of peers.
    ("CS", "own ca basicConstraints=CA:TRUE keyUsage=keyCertSign,digitalSignature"),
    ("CS", "own basicConstraints=CA:TRUE"),
    ("CS", "own basicConstraints=CA:FALSE"),
    ("CS", "own basicConstraints=CA:FALSE keyUsage=digitalSignature"),
    ("--", "own ca"),
    ("--", "own days=-2..-1"),
    ("--", "own days=1..2"),
    ("--", "own basicConstraints=CA:TRUE | twin subject=/CN=own basicConstraints=CA:TRUE"),
    ("--", "own basicConstraints=CA:TRUE | again subject=/CN=own as=own basicConstraints=CA:TRUE"),
    ("--", "own | leaf < own | end < leaf"),
    ("CS", "other ca | own trusted"),
    // Chains of several.
    ("CS", "root ca | middle < root ca | leaf < middle"),
    ("--", "root ca | middle < root ca kept | leaf < middle"),
    ("CS", "root ca | middle < root ca trusted | leaf < middle"),
    ("--", "root ca kept | middle < root ca trusted | leaf < middle"),
    ("--", "root ca sent | middle < root ca trusted | leaf < middle"),
    ("--", "root ca | middle < root basicConstraints=CA:FALSE | leaf < middle"),
    ("--", "root ca | middle < root subjectKeyIdentifier=hash | leaf < middle"),
    ("--", "root ca | middle < root keyUsage=keyCertSign | leaf < middle"),
    (
        "--",
        "root ca | middle < root basicConstraints=CA:TRUE keyUsage=digitalSignature | \
            leaf < middle",
    ),
    ("CS", "root ca | middle < root basicConstraints=CA:TRUE | leaf < middle"),
    ("--", "root ca | middle < root ca days=-2..-1 | leaf < middle"),
    ("--", "root ca | middle < root ca days=1..2 | leaf < middle"),
    ("--", "root ca | middle < root ca | leaf < middle days=-2..-1"),
    ("--", "root ca | middle < root ca | leaf < middle days=1..2"),
    (
        "CS",
        "root ca | old < root ca days=-5..-1 subject=/CN=m as=m | \
            new < root ca subject=/CN=m as=m | leaf < new",
    ),
    (
        "CS",
        "root ca | a < root ca | b < a ca | c < b ca | d < c ca | e < d ca | f < e ca | \
            leaf < f",
    ),
    (
        "--",
        "root ca | a < root ca | b < a ca | c < b ca | d < c ca | e < d ca | f < e ca | \
            g < f ca | leaf < g",
    ),
    ("CS", "root ca | b < root ca | stray ca | a < b ca | leaf < a"),
    ("CS", "root ca | old ca | cross < old subject=/CN=root as=root ca | leaf < root"),
    ("CS", "old ca | new ca kept | cross < old subject=/CN=new as=new ca | leaf < new"),
    // Path lengths.
    ("CS", "root basicConstraints=CA:TRUE,pathlen:0 | leaf < root"),
    ("--", "root basicConstraints=CA:TRUE,pathlen:0 | middle < root ca | leaf < middle"),
    ("CS", "root basicConstraints=CA:TRUE,pathlen:1 | middle < root ca | leaf < middle"),
    ("--", "root basicConstraints=CA:TRUE,pathlen:1 | a < root ca | b < a ca | leaf < b"),
    ("--", "root ca | a < root basicConstraints=CA:TRUE,pathlen:0 | b < a ca | leaf < b"),
    ("CS", "root ca | a < root basicConstraints=CA:TRUE,pathlen:0 | leaf < a"),
    (
        "CS",
        "root ca | a < root basicConstraints=CA:TRUE,pathlen:0 | leaf < a ca \
            keyUsage=digitalSignature",
    ),
    (
        "CS",
        "root basicConstraints=CA:TRUE,pathlen:1 | a < root ca subjectKeyIdentifier=hash | \
            b < a subject=/CN=a ca subjectKeyIdentifier=hash authorityKeyIdentifier=keyid | \
            leaf < b authorityKeyIdentifier=keyid",
    ),
    (
        "--",
        "root basicConstraints=CA:TRUE,pathlen:1 | a < root ca subjectKeyIdentifier=hash | \
            b < a ca subjectKeyIdentifier=hash authorityKeyIdentifier=keyid | \
            leaf < b authorityKeyIdentifier=keyid",
    ),
    // The permitted uses of a peer's certificate.
    ("CS", "root ca | leaf < root keyUsage=digitalSignature"),
    ("-S", "root ca | leaf < root keyUsage=keyEncipherment"),
    ("CS", "root ca | leaf < root keyUsage=keyAgreement"),
    ("--", "root ca | leaf < root keyUsage=nonRepudiation"),
    ("--", "root ca | leaf < root keyUsage=critical,dataEncipherment"),
    ("C-", "root ca | leaf < root extendedKeyUsage=clientAuth"),
    ("-S", "root ca | leaf < root extendedKeyUsage=serverAuth"),
    ("CS", "root ca | leaf < root extendedKeyUsage=serverAuth,clientAuth"),
    ("--", "root ca | leaf < root extendedKeyUsage=codeSigning"),
    ("--", "root ca | leaf < root extendedKeyUsage=anyExtendedKeyUsage"),
    ("-S", "root ca | leaf < root extendedKeyUsage=msSGC"),
    ("-S", "root ca | leaf < root extendedKeyUsage=serverAuth keyUsage=keyEncipherment"),
    ("--", "root ca | leaf < root extendedKeyUsage=clientAuth keyUsage=keyEncipherment"),
    ("C-", "root ca | leaf < root nsCertType=client"),
    ("-S", "root ca | leaf < root nsCertType=server"),
    // The permitted uses of a CA's certificate.
    ("C-", "root ca extendedKeyUsage=clientAuth | leaf < root"),
    ("-S", "root ca | middle < root ca extendedKeyUsage=serverAuth | leaf < middle"),
    ("--", "root ca | middle < root ca extendedKeyUsage=codeSigning | leaf < middle"),
    ("CS", "root nsCertType=sslCA | leaf < root"),
    ("--", "root nsCertType=emailCA | leaf < root"),
    ("--", "root ca | middle < root nsCertType=sslCA | leaf < middle"),
    // Key identifiers.
    ("CS", "root ca subjectKeyIdentifier=hash | leaf < root authorityKeyIdentifier=keyid"),
    (
        "CS",
        "root ca subjectKeyIdentifier=hash | \
            leaf < root authorityKeyIdentifier=keyid,issuer:always",
    ),
    (
        "--",
        "root ca subjectKeyIdentifier=hash | other kept subject=/CN=root as=root ca \
            2.5.29.14=DER:04:04:01:02:03:04 | leaf < other authorityKeyIdentifier=keyid",
    ),
    (
        "--",
        "root ca | again kept subject=/CN=root as=root ca | \
            leaf < again authorityKeyIdentifier=issuer:always",
    ),
    (
        "CS",
        "other subject=/CN=root ca subjectKeyIdentifier=hash | \
            root trusted ca subjectKeyIdentifier=hash | leaf < root authorityKeyIdentifier=keyid",
    ),
    ("--", "other subject=/CN=root ca | root trusted ca | leaf < root"),
    ("CS", "root ca | other trusted subject=/CN=root ca | leaf < root"),
    // Extensions that are unknown or make no sense.
    ("CS", "root ca | leaf < root 1.2.3.4=ASN1:NULL"),
    ("--", "root ca | leaf < root 1.2.3.4=critical,ASN1:NULL"),
    ("--", "root ca 1.2.3.4=critical,ASN1:NULL | leaf < root"),
    ("--", "root ca | middle < root ca 1.2.3.4=critical,ASN1:NULL | leaf < middle"),
    ("--", "root ca | leaf < root subjectKeyIdentifier=critical,hash"),
    ("CS", "root ca | leaf < root certificatePolicies=critical,1.2.3.4"),
    ("CS", "root ca | leaf < root inhibitAnyPolicy=critical,0"),
    ("CS", "root ca | leaf < root noCheck=critical,ignored"),
    ("--", "root ca | leaf < root basicConstraints=DER:01:02"),
    ("--", "root ca | leaf < root keyUsage=DER:03:02:00:00"),
    ("--", "root ca | leaf < root subjectAltName=DER:04:00"),
    ("--", "root ca | leaf < root extendedKeyUsage=DER:05:00"),
    ("--", "root basicConstraints=CA:TRUE keyUsage=DER:05:00 | leaf < root"),
    (
        "--",
        "root ca | leaf < root 1.3.6.1.5.5.7.1.14=DER:30:0c:30:0a:06:08:2b:06:01:05:05:07:15:01",
    ),
    // Keys and signatures.
    ("CS", "root ca key=p384 | leaf < root key=p384"),
    ("CS", "root ca key=p521 md=sha512 | leaf < root md=sha512 key=p521"),
    ("CS", "root ca key=p521 | leaf < root md=sha224"),
    ("CS", "root ca | leaf < root md=sha512"),
    ("CS", "root ca | leaf < root md=sha384"),
    ("CS", "root ca | leaf < root md=sha224"),
    ("CS", "root ca key=p384 | leaf < root md=sha512"),
    ("CS", "root ca key=p384 | leaf < root md=sha256"),
    ("CS", "root ca key=p384 | leaf < root md=sha224"),
    ("--", "root ca | leaf < root md=sha1"),
    ("CS", "root ca md=sha1 | leaf < root"),
    ("CS", "own md=sha1"),
    ("CS", "root ca key=rsa2048 | leaf < root key=rsa2048"),
    ("CS", "root ca key=rsa2048 | leaf < root md=sha384"),
    ("CS", "root ca key=rsa2048 | leaf < root md=sha512"),
    ("--", "root ca key=rsa2048 | leaf < root md=sha1"),
    ("--", "root ca key=rsa1024 | leaf < root"),
    ("--", "root ca | leaf < root key=rsa1024"),
    ("--", "own key=rsa1024"),
    ("CS", "root ca | leaf < root key=pss2048"),
    ("--", "root ca | leaf < root key=pss1024"),
    ("--", "root ca | other key=rsa2048 ca kept subject=/CN=root | leaf < other"),
    ("CS", "root ca key=ed25519 md=null | leaf < root md=null"),
    ("CS", "root ca | leaf < root key=ed25519"),
    // Name constraints.
    (
        "CS",
        "root ca nameConstraints=permitted;DNS:example | leaf < root subjectAltName=DNS:a.example",
    ),
    ("--", "root ca nameConstraints=permitted;DNS:example | leaf < root subjectAltName=DNS:a.test"),
    (
        "--",
        "root ca nameConstraints=excluded;DNS:example | leaf < root subjectAltName=DNS:a.example",
    ),
    ("CS", "root ca nameConstraints=excluded;DNS:example | leaf < root subjectAltName=DNS:a.test"),
    (
        "--",
        "root ca nameConstraints=critical,permitted;DNS:example | \
            leaf < root subject=/CN=a.test",
    ),
    ("CS", "root ca nameConstraints=permitted;DNS:example | leaf < root subject=/CN=app"),
    (
        "CS",
        "root ca nameConstraints=permitted;IP:10.0.0.0/255.0.0.0 | \
            leaf < root subjectAltName=IP:10.1.2.3",
    ),
    (
        "--",
        "root ca nameConstraints=permitted;IP:10.0.0.0/255.0.0.0 | \
            leaf < root subjectAltName=IP:11.1.2.3",
    ),
    (
        "--",
        "root ca nameConstraints=permitted;email:example | leaf < root subjectAltName=email:a@test",
    ),
    (
        "--",
        "root ca nameConstraints=permitted;email:example | \
            leaf < root subject=/CN=a/emailAddress=a@test",
    ),
    (
        "--",
        "root ca nameConstraints=permitted;URI:.example | \
            leaf < root subjectAltName=URI:https://test/",
    ),
    (
        "--",
        "root ca nameConstraints=permitted;otherName:1.2.3;UTF8:a | \
            leaf < root subjectAltName=otherName:1.2.3;UTF8:b",
    ),
    (
        "--",
        "root ca | middle < root ca nameConstraints=excluded;DNS:example | \
            low < middle ca | leaf < low subjectAltName=DNS:a.example",
    ),
    ("CS", "root ca nameConstraints=permitted;DNS:example | middle < root ca | leaf < middle"),
];
