//! Hosts that a test makes: network namespaces, each with an interface on a bridge.
//!
//! Input: how many. Output: what starts a program on one of them, for `blizzard run --launcher`. Skips the running test where rights or programs are missing.
//! **Invariant**: nothing of the network is left when the value is dropped, and every process of a host has ended then.

use blizzard_test_harness::needs::{is_root, need, need_file, need_system, tool};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::TempDir;

/// Hosts that see each other.
pub struct Network {
    bridge: String,
    hosts: Vec<String>,
    folder: TempDir,
    /// What carries between the hosts of a bad network.
    carrier: Option<Child>,
}

/// What lets `mpirun` start more ranks than processors, and root use it.
pub const MPIRUN: [(&str, &str); 3] = [
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
];

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

/// What `ssh` is to the hosts: a shell there, which reads the words that follow the host's name. `a` is the first host, `b` the second.
const SSH: &str = r#"#!/bin/sh
while case $1 in -*) true ;; *) false ;; esac; do shift; done
name=$1
shift
case $name in
a) host=HOST-1 ;;
b) host=HOST-2 ;;
*) host=$name ;;
esac
exec ip netns exec "$host" unshare --uts sh -ec '
echo "$0" >/proc/sys/kernel/hostname
exec sh -c "$*"' "$name" "$@"
"#;

fn script(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn ip(words: &[&str]) -> bool {
    tool("ip").args(words).output().is_ok_and(|done| done.status.success())
}

impl Network {
    /// So many hosts, without what carries messages.
    ///
    /// # Panics
    /// The kernel refuses a part of it, to whoever may make the first namespace.
    pub fn new(hosts: usize) -> Network {
        let mut network = Network::begin();
        network.make(&["link", "add", "br0", "type", "bridge"]);
        network.make(&["link", "set", "br0", "up"]);
        for number in 1..=hosts {
            let host = network.add_host();
            let port = format!("p{number}");
            network.make(&["link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &host]);
            network.make(&["link", "set", &port, "master", "br0", "up"]);
            network.bring_up(number);
        }
        network
    }

    /// So many hosts that run nodes, on a network that loses so much of what is sent, and delays the rest.
    ///
    /// # Panics
    /// As [`Network::new`].
    pub fn bad(hosts: usize, loss_percent: u32, delay_ms: u32) -> Network {
        need_file("/usr/lib/x86_64-linux-gnu/libucp.so.0", "libucx0");
        need("python3");
        need_system(Path::new("/dev/net/tun").exists(), "tap devices");
        let mut network = Network::begin();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("hosts/bad_network.py");
        let mut command = tool("ip");
        command.args(["netns", "exec", &network.bridge, "python3"]).arg(script);
        command.args([hosts.to_string(), loss_percent.to_string(), delay_ms.to_string()]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "ready\n");
        network.carrier = Some(child);
        for number in 1..=hosts {
            let host = network.add_host();
            network.make(&["link", "set", &format!("bz{}", number - 1), "name", "eth0", "netns", &host]);
            network.bring_up(number);
        }
        network
    }

    /// No hosts yet.
    fn begin() -> Network {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        for program in ["ip", "unshare", "mount"] {
            need(program);
        }
        need_system(is_root(), "the rights of root for its tests, who may make networks");
        let base = format!("bz{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let bridge = format!("{base}-net");
        need_system(ip(&["netns", "add", &bridge]), "network namespaces");
        let folder = tempfile::Builder::new().prefix("blizzard-test-hosts-").tempdir().unwrap();
        let network = Network { bridge, hosts: Vec::new(), folder, carrier: None };
        script(&network.starter(), STARTER);
        fs::create_dir(network.programs()).unwrap();
        script(&network.programs().join("ssh"), &SSH.replace("HOST", &base));
        network
    }

    fn add_host(&mut self) -> String {
        let host = self.bridge.replace("net", &(self.hosts.len() + 1).to_string());
        assert!(ip(&["netns", "add", &host]), "{host}");
        self.hosts.push(host.clone());
        host
    }

    /// Gives the last host, which has this number, its address.
    fn bring_up(&self, number: usize) {
        let address = format!("10.77.0.{number}/24");
        for words in [
            &["link", "set", "lo", "up"][..],
            &["addr", "add", &address, "dev", "eth0"],
            &["link", "set", "eth0", "up"],
        ] {
            assert!(ip(&[&["-n", &self.hosts[number - 1]], words].concat()), "{words:?}");
        }
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

    /// A folder with `ssh`, for `PATH`; the hosts have all files of this one, and its cache.
    pub fn programs(&self) -> PathBuf {
        self.folder.path().join("bin")
    }

    /// A shell on host `a` that reads this line: with `ssh` and `blizzard` in its `PATH`, and over TCP.
    pub fn shell(&self, line: &str) -> Command {
        let blizzard = self.programs().join("blizzard");
        if !blizzard.exists() {
            std::os::unix::fs::symlink(crate::tool::path(), &blizzard).unwrap();
        }
        let path = std::env::join_paths(
            std::iter::once(self.programs())
                .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
        );
        let mut command = Command::new(self.programs().join("ssh"));
        command.args(["a", "exec", "env", "--default-signal"]).args(["sh", "-ec"]).arg(format!("'{line}'"));
        command.env("PATH", path.unwrap()).envs([("UCX_TLS", "tcp,self"), ("UCX_NET_DEVICES", "eth0")]);
        command.envs(MPIRUN).current_dir(self.folder());
        command
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

    /// Puts it in again.
    pub fn mend(&self, number: usize) {
        self.make(&["link", "set", &format!("p{}", number + 1), "up"]);
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
        if let Some(mut carrier) = self.carrier.take() {
            let _ = carrier.kill();
            let _ = carrier.wait();
        }
        for name in self.hosts.iter().chain([&self.bridge]) {
            ip(&["netns", "del", name]);
        }
    }
}
