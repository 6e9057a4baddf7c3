//! Who may use the nodes that `run` creates, read from text.

use recipes_zookeeper::{Acl, AuthId, Permission};

/// Characters of a digest: the base64 of a SHA-1.
const DIGEST_LENGTH: usize = 28;

/// The rights on nodes of a run without which there is no lock, and what they are for.
const NEEDED: [(Permission, &str); 3] = [
    (
        Permission::CREATE,
        "c (CREATE), without which no contender can make its node in the lock's directory",
    ),
    (
        Permission::DELETE,
        "d (DELETE), without which nobody can delete a node there, and so release the lock",
    ),
    (
        Permission::READ,
        "r (READ), without which no contender can see who is ahead",
    ),
];

/// Who may use the nodes that a run creates: `open`, `creator`, or entries as ZooKeeper's own shell
/// takes them. No message repeats an id: a password may stand where a digest belongs.
pub(crate) fn acl(text: &str) -> Result<Vec<Acl>, String> {
    match text {
        "open" => return Ok(vec![Acl::new(Permission::ALL, AuthId::anyone())]),
        "creator" => return Ok(vec![Acl::new(Permission::ALL, AuthId::authed())]),
        _ => {}
    }
    let (mut acl, mut pending) = (Vec::new(), Vec::new());
    for part in text.split(',') {
        pending.push(part);
        // Names in certificates have commas too, so an entry goes on until it has permissions.
        let whole = pending.join(",");
        if let Some((who, permissions)) = permissions_of(&whole) {
            acl.push(Acl::new(permissions, who_of(who)?));
            pending.clear();
        }
    }
    if acl.is_empty() || !pending.is_empty() {
        let number = acl.len() + 1;
        return Err(format!(
            "entry {number} is not SCHEME:ID:PERMISSIONS, with some of c, d, r, w and a"
        ));
    }
    admits_somebody(&acl).map(|()| acl)
}

/// Refuses a list by which nobody could use the lock, this run included.
fn admits_somebody(acl: &[Acl]) -> Result<(), String> {
    let is_given = |needed: Permission| acl.iter().any(|it| it.permission().has(needed));
    let missing = NEEDED.iter().filter(|(needed, _)| !is_given(*needed));
    let missing: Vec<_> = missing.map(|(_, why)| *why).collect();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "it locks everybody out, because no entry has {}",
            missing.join("; nor ")
        )),
    }
}

fn permissions_of(entry: &str) -> Option<(&str, Permission)> {
    let (who, letters) = entry.rsplit_once(':')?;
    let mut permissions = Permission::NONE;
    for letter in letters.chars() {
        permissions = permissions
            | match letter {
                'c' => Permission::CREATE,
                'd' => Permission::DELETE,
                'r' => Permission::READ,
                'w' => Permission::WRITE,
                'a' => Permission::ADMIN,
                _ => return None,
            };
    }
    // `world:a` has no permissions, only an id that could be some.
    (!letters.is_empty() && who.contains(':')).then_some((who, permissions))
}

fn who_of(who: &str) -> Result<AuthId, String> {
    let (scheme, id) = who.split_once(':').unwrap_or((who, ""));
    let is_digest = |hash: &str| hash.len() == DIGEST_LENGTH && hash.ends_with('=');
    match (scheme, id) {
        ("", _) => Err("an entry has no scheme".to_owned()),
        ("world", "anyone") | ("auth", _) => Ok(AuthId::new(scheme, id)),
        ("world", _) => Err("the only id of scheme world is anyone".to_owned()),
        ("digest", _) => match id.rsplit_once(':').is_some_and(|it| is_digest(it.1)) {
            true => Ok(AuthId::new(scheme, id)),
            false => Err("scheme digest takes USER:HASH, not a password".to_owned()),
        },
        (_, "") => Err(format!("an entry of scheme {scheme:?} has no id")),
        _ => Ok(AuthId::new(scheme, id)),
    }
}

#[cfg(test)]
mod tests {
    use recipes_zookeeper::{Acl, Permission};

    use super::acl;

    #[test]
    fn acls_are_words_or_entries_with_permissions() {
        let read = |text: &str| -> Vec<(String, String)> {
            let acl = acl(text).unwrap();
            let entry = |it: &Acl| {
                let who = format!("{}:{}", it.scheme(), it.id());
                (who, format!("{:?}", it.permission()))
            };
            acl.iter().map(entry).collect()
        };
        let permissions = |it: Permission| format!("{it:?}");
        let all = permissions(Permission::ALL);
        let to = |who: &str, what: &str| (who.to_owned(), what.to_owned());
        assert_eq!(read("open"), [to("world:anyone", &all)]);
        assert_eq!(read("creator"), [to("auth:", &all)]);
        let digest = "digest:ops:6oydJrFeF0qMiG4jeCQ0VpiwJpM=";
        let some = permissions(Permission::READ | Permission::WRITE);
        // Somebody may have two of the ids.
        read("ip:10.0.0.1:cd,world:anyone:r");
        let both = read(&format!("{digest}:cdrwa,x509:CN=a,OU=b:rw"));
        assert_eq!(both, [to(digest, &all), to("x509:CN=a,OU=b", &some)]);
    }

    #[test]
    fn acls_that_would_lock_everybody_out_are_refused_without_their_ids() {
        for (wrong, named) in [
            ("", "entry 1 is not SCHEME:ID:PERMISSIONS"),
            ("everyone", "entry 1 is not"),
            ("world:anyone", "entry 1 is not"),
            ("world:anyone:", "entry 1 is not"),
            ("world:anyone:rx", "entry 1 is not"),
            ("world:anyone:r,", "entry 2 is not"),
            ("world:secret:r", "scheme world is anyone"),
            ("digest:ops:secret:cdrwa", "not a password"),
            ("ip::r", "\"ip\" has no id"),
            (":secret:r", "no scheme"),
            (
                "world:anyone:drwa",
                "no entry has c (CREATE), without which",
            ),
            (
                "world:anyone:crwa",
                "no entry has d (DELETE), without which",
            ),
            ("world:anyone:cdwa", "no entry has r (READ), without which"),
            ("ip:secret:cd,world:anyone:w", "no entry has r (READ)"),
            ("world:anyone:r", "release the lock"),
        ] {
            let refused = acl(wrong).unwrap_err();
            assert!(refused.contains(named), "{wrong}: {refused}");
            assert!(!refused.contains("secret"), "{refused}");
        }
    }
}
