//! A Slurm of one controller and a daemon on each host of a [`Network`].
//!
//! Input: hosts `a` and `b`. Output: `srun` on the first. Skips the running test where packages are missing, or where the daemons do not start: they want control
//! groups of version 1. **Invariant**: every process is one of the network's hosts, and ends with them.

use crate::network::Network;
use blizzard_test_harness::needs::{need, need_file, need_system};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long the daemons may take to find each other.
const START: Duration = Duration::from_secs(20);

/// Starts a program on a host, which sees its own network below `/sys`, and the control groups.
const ON_HOST: &str = r#"
echo "$0" >/proc/sys/kernel/hostname
mkdir -p "$FOLDER/groups.$0"
mount --rbind /sys/fs/cgroup "$FOLDER/groups.$0"
mount -t sysfs none /sys
mount --rbind "$FOLDER/groups.$0" /sys/fs/cgroup
exec "$@""#;

const HOSTS: [&str; 2] = ["a", "b"];

/// The cluster.
pub struct Slurm<'a> {
    network: &'a Network,
    daemons: Vec<Child>,
}

impl Slurm<'_> {
    /// Starts it.
    ///
    /// # Panics
    /// Its files cannot be written.
    pub fn start(network: &Network) -> Slurm<'_> {
        for (program, package) in
            [("slurmctld", "slurmctld"), ("slurmd", "slurmd"), ("srun", "slurm-client"), ("munged", "munge")]
        {
            need_file(format!("/usr/{}/{program}", if program == "srun" { "bin" } else { "sbin" }), package);
        }
        need_file("/usr/lib/x86_64-linux-gnu/libpmi2.so.0", "libpmi2-0");
        for program in ["nsenter", "unshare", "mount"] {
            need(program);
        }
        let mut slurm = Slurm { network, daemons: Vec::new() };
        slurm.write_files();
        let folder = network.folder().display();
        slurm.daemon(0, &format!(
            "munged --foreground --force --key-file={folder}/key --socket={folder}/munge --pid-file={folder}/munge.pid --log-file={folder}/munge.log --seed-file={folder}/seed"
        ));
        slurm.daemon(0, "slurmctld -D");
        for host in 0..HOSTS.len() {
            slurm.daemon(host, "slurmd -D");
        }
        let began = Instant::now();
        while !slurm.is_ready() {
            need_system(began.elapsed() < START, "the control groups that slurmd wants");
            std::thread::sleep(Duration::from_millis(200));
        }
        slurm
    }

    fn write_files(&self) {
        let folder = self.network.folder();
        for name in ["state", "spool.a", "spool.b", "tmp.a", "tmp.b"] {
            fs::create_dir(folder.join(name)).unwrap();
        }
        // The daemons go through all folders above, with rights of their own.
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
        let key = folder.join("key");
        fs::write(&key, fs::read("/proc/sys/kernel/random/uuid").unwrap().repeat(4)).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        let folder = folder.display();
        let nodes: String = HOSTS
            .iter()
            .zip(1..)
            .map(|(host, number)| format!("NodeName={host} NodeAddr=10.77.0.{number} CPUs=8\n"))
            .collect();
        let text = format!(
            "ClusterName=blizzard\nSlurmctldHost=a(10.77.0.1)\nAuthType=auth/munge\nAuthInfo=socket={folder}/munge\n\
             SlurmUser=root\nStateSaveLocation={folder}/state\nSlurmdSpoolDir={folder}/spool.%n\nTmpFS={folder}/tmp.%n\n\
             SlurmctldPidFile={folder}/ctld.pid\nSlurmdPidFile={folder}/slurmd.%n.pid\nSlurmctldLogFile={folder}/ctld.log\n\
             SlurmdLogFile={folder}/slurmd.%n.log\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSwitchType=switch/none\n\
             SelectType=select/cons_tres\nSlurmdParameters=config_overrides\n{nodes}PartitionName=all Nodes=a,b Default=YES\n"
        );
        fs::write(self.network.folder().join("slurm.conf"), text).unwrap();
        fs::write(self.network.folder().join("cgroup.conf"), "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n").unwrap();
    }

    /// A program on a host.
    fn on(&self, host: usize, words: &[&str]) -> Command {
        let folder = self.network.folder();
        // `ip netns exec` would hide the control groups.
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.network.host(host)));
        command.args(["unshare", "--uts", "--mount", "sh", "-ec", ON_HOST]);
        command.arg(HOSTS[host]).args(words).env("FOLDER", folder).env("SLURM_CONF", folder.join("slurm.conf"));
        command.current_dir(folder);
        command
    }

    fn daemon(&mut self, host: usize, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let mut command = self.on(host, &words);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.daemons.push(child.unwrap());
    }

    fn is_ready(&self) -> bool {
        let said = self.on(0, &["sinfo", "--noheader", "--format=%t %D"]).output();
        said.is_ok_and(|said| said.stdout.trim_ascii() == b"idle 2")
    }

    /// `srun` with these options, over TCP.
    pub fn srun(&self, words: &[&str]) -> Command {
        let mut command = self.on(0, &[&["srun"], words].concat());
        command.envs([("UCX_TLS", "tcp,self"), ("UCX_NET_DEVICES", "eth0")]);
        command
    }
}

impl Drop for Slurm<'_> {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}
