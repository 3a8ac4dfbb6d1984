//! One plain process and two nodes give the same answer.

use std::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_@NAME@");

fn answer(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn two_nodes_give_the_same_answer() {
    let blizzard = std::env::var_os("BLIZZARD").unwrap_or_else(|| "blizzard".into());
    let nodes = answer(Command::new(blizzard).args(["run", "-n", "2", "--", PROGRAM]));
    assert_eq!(answer(&mut Command::new(PROGRAM)), nodes);
}
