//! Tells the linker to keep the relocations of `basestream` packed where the machine's C library can read them: they
//! take 6 MB of the binary otherwise. A binary needs the C library it was built with, or a later one, in any case.

use std::env;
use std::process::Command;

/// The first glibc that reads packed relocations (DT_RELR).
const FIRST_GLIBC: (u32, u32) = (2, 36);

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |variable: &str, value: &str| env::var(variable).is_ok_and(|found| found == value);
    let is_for_this_machine = env::var("HOST").is_ok_and(|host| is("TARGET", &host));
    let is_gnu_linux = is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu");
    if is("PROFILE", "release") && is_gnu_linux && is_for_this_machine && glibc().is_some_and(|version| version >= FIRST_GLIBC) {
        // A linker that does not know the option warns of it and goes on.
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// The version of the machine's glibc.
fn glibc() -> Option<(u32, u32)> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let (major, minor) = text.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
}
