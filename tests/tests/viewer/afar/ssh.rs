//! Watches a process through a real sshd.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use pfp_read::snapshot::PointState;
use pfp_tests::place::Place;
use pfp_tests::target::end_with_test;
use pfp_tests::tools::{lacks, missing};
use serde_json::Value;

use super::{Near, STEADY, complaint};

const SSHD: &str = "/usr/sbin/sshd";

/// The test's own sshd, on the loopback interface.
struct Sshd {
    child: Child,
    client: String,
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Sshd {
    /// `None` if this system does not permit such a login.
    fn start(place: &Place) -> Option<Self> {
        let path = |name: &str| place.path(name).display().to_string();
        for key in ["host", "user"] {
            let key = path(key);
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f", &key])
                .status()
                .is_ok_and(|status| status.success());
            assert!(made, "ssh-keygen makes keys");
        }
        // sshd needs this folder for privilege separation.
        let _ = std::fs::create_dir("/run/sshd");
        let port = TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?.port();
        std::fs::write(
            path("sshd"),
            format!(
                "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\n\
                 PidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin yes\n\
                 PermitUserEnvironment no\nAcceptEnv PFP_*\n",
                path("host"),
                path("user.pub"),
            ),
        )
        .expect("there is room");
        std::fs::set_permissions(path("user"), PermissionsExt::from_mode(0o600)).ok()?;
        let mut command = Command::new(SSHD);
        command.args(["-D", "-e", "-f", &path("sshd")]).stderr(Stdio::null());
        let child = end_with_test(&mut command).spawn().ok()?;
        let client = format!(
            "ssh -q -p {port} -i {} -o BatchMode=yes -o StrictHostKeyChecking=no \
             -o UserKnownHostsFile=/dev/null -o SendEnv=PFP_* -o ConnectTimeout=10 127.0.0.1",
            path("user")
        );
        let sshd = Self { child, client };
        let enters = |_: &u32| {
            std::thread::sleep(std::time::Duration::from_millis(200));
            let words = format!("{} true", sshd.client);
            Command::new("sh").args(["-c", &words]).status().is_ok_and(|status| status.success())
        };
        (0..25).find(enters)?;
        Some(sshd)
    }
}

#[test]
fn a_process_is_watched_through_ssh() {
    const WHAT: &str = "--via through ssh";
    // Only root has sshd on the path, so the test checks its file.
    if !Path::new(SSHD).exists() {
        return missing(WHAT, "sshd is not installed", "apt-get install openssh-server");
    }
    if lacks(WHAT, "ssh") {
        return;
    }
    let near = Near::new();
    let target = near.0.start_watched(STEADY, &["far"]);
    let Some(sshd) = Sshd::start(&near.0) else {
        let why = "the sshd that was started lets nobody in";
        return missing(WHAT, why, "start it by hand, and see what it says");
    };
    let via = format!("{} PATH={}:/usr/bin:/bin", sshd.client, near.0.path("bin").display());
    let output = near.run(&via, &["--once", "--json"]);
    pfp_tests::well(&output);
    let shown: Value = serde_json::from_slice(&output.stdout).expect("a line of JSON");
    assert!(shown.to_string().contains("tick"), "{shown}");
    let output = near.run(&via, &["disable", "tick"]);
    pfp_tests::well(&output);
    assert_eq!(near.state(&target, "tick"), PointState::Off);
    // If `pfp-top` is not installed there, the viewer prints that instead of the shell's message.
    let without = format!("{} PATH=/nowhere", sshd.client);
    let output = near.run(&without, &["--once"]);
    assert_eq!(output.status.code(), Some(3), "{}", complaint(&output));
    drop(sshd);
    let output = near.run(&via, &["--once"]);
    assert_eq!(output.status.code(), Some(2), "{}", complaint(&output));
}
