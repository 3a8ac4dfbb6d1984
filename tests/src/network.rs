//! Hosts that a test makes: network namespaces, each with an interface on a bridge.
//!
//! Input: how many. Output: what starts a program on one of them, for `blizzard run --launcher`. Skips the running test where rights or programs are missing.
//! **Invariant**: nothing of the network is left when the value is dropped, and every process of a host has ended then.

use blizzard_test_harness::needs::{is_root, need, need_file, need_system, tool};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::TempDir;

/// Hosts that see each other.
pub struct Network {
    bridge: String,
    hosts: Vec<String>,
    folder: TempDir,
}

/// Starts a program on a host: with a name and a `/var/tmp` of its own, in which it has its cache.
const STARTER: &str = r#"#!/bin/sh
host=$1
shift
exec ip netns exec "$host" unshare --uts --mount sh -ec '
echo "$0" >/proc/sys/kernel/hostname
mount -t tmpfs none /var/tmp
export BLIZZARD_CACHE=/var/tmp/cache
exec "$@"' "$host" "$@"
"#;

fn ip(words: &[&str]) -> bool {
    tool("ip").args(words).output().is_ok_and(|done| done.status.success())
}

impl Network {
    /// So many hosts, without what carries messages.
    ///
    /// # Panics
    /// The kernel refuses a part of it, to whoever may make the first namespace.
    pub fn new(hosts: usize) -> Network {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        for program in ["ip", "unshare", "mount"] {
            need(program);
        }
        need_system(is_root(), "the rights of root for its tests, who may make networks");
        let base = format!("bz{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let bridge = format!("{base}-net");
        need_system(ip(&["netns", "add", &bridge]), "network namespaces");
        let folder = tempfile::Builder::new().prefix("blizzard-test-hosts-").tempdir().unwrap();
        let mut network = Network { bridge, hosts: Vec::new(), folder };
        network.make(&["link", "add", "br0", "type", "bridge"]);
        network.make(&["link", "set", "br0", "up"]);
        for number in 1..=hosts {
            let host = format!("{base}-{number}");
            assert!(ip(&["netns", "add", &host]), "{host}");
            network.hosts.push(host.clone());
            let port = format!("p{number}");
            network.make(&["link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &host]);
            network.make(&["link", "set", &port, "master", "br0", "up"]);
            let address = format!("10.77.0.{number}/24");
            for words in [
                &["link", "set", "lo", "up"][..],
                &["addr", "add", &address, "dev", "eth0"],
                &["link", "set", "eth0", "up"],
            ] {
                assert!(ip(&[&["-n", &host], words].concat()), "{words:?}");
            }
        }
        fs::write(network.starter(), STARTER).unwrap();
        fs::set_permissions(network.starter(), fs::Permissions::from_mode(0o755)).unwrap();
        network
    }

    /// So many hosts that run nodes.
    pub fn with_ucx(hosts: usize) -> Network {
        need_file("/usr/lib/x86_64-linux-gnu/libucp.so.0", "libucx0");
        Network::new(hosts)
    }

    fn make(&self, words: &[&str]) {
        assert!(ip(&[&["-n", &self.bridge], words].concat()), "{words:?}");
    }

    /// What `--launcher` is given.
    pub fn starter(&self) -> PathBuf {
        self.folder.path().join("start")
    }

    /// A folder that goes with the network.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The name of a host.
    pub fn host(&self, number: usize) -> &str {
        &self.hosts[number]
    }

    /// All hosts with so many nodes each, as `--hosts` has it.
    pub fn list(&self, nodes: u32) -> String {
        self.hosts.iter().map(|host| format!("{host}:{nodes}")).collect::<Vec<_>>().join(",")
    }

    /// Takes a host's cable out.
    pub fn cut(&self, number: usize) {
        self.make(&["link", "set", &format!("p{}", number + 1), "down"]);
    }

    /// The processes of a host.
    pub fn processes(&self, number: usize) -> Vec<i32> {
        let said = tool("ip").args(["netns", "pids", &self.hosts[number]]).output();
        let text = said.map(|said| String::from_utf8_lossy(&said.stdout).into_owned()).unwrap_or_default();
        text.split_whitespace().filter_map(|number| number.parse().ok()).collect()
    }

    /// Those of all hosts.
    pub fn all_processes(&self) -> Vec<i32> {
        (0..self.hosts.len()).flat_map(|number| self.processes(number)).collect()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for pid in self.all_processes().into_iter().filter_map(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
        for name in self.hosts.iter().chain([&self.bridge]) {
            ip(&["netns", "del", name]);
        }
    }
}
