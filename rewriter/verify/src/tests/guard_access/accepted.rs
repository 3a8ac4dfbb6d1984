//! Guarded code of compilers and of the system's programs is accepted, also where it has learnt.

use crate::Finding;
use crate::sites::site::SiteKind;
use crate::tests::fixtures::audits::verify_with;
use crate::tests::fixtures::compiled::{PLANTED_PROGRAM, compiled};
use crate::tests::guard_access::subject::{SOURCE, Subject, tests_of};
use crate::tests::outputs::unwinding::THROWS;
use blizzard::base::options::{AccessMode, Options};
use blizzard::base::output_file::OutputSink;
use blizzard::pipeline;
use blizzard::write::file::LibraryRecord;
use blizzard::write::runtime_blob::Blob;

#[test]
fn accepts_outputs_of_compilers() {
    for level in ["-O0", "-O1", "-O2", "-O3"] {
        let s = Subject::new("cc", SOURCE, &[level]);
        s.accepted(level);
        s.view(|view| {
            assert!(view.tests().count() > 20 && view.m.versions().expect("rows").len() > 20, "{level}");
        });
        Subject::new("cc", PLANTED_PROGRAM, &[level, "-no-pie"]).accepted(level);
    }
}

#[test]
#[ignore = "needs g++: run by tests/of_the_library.rs"]
fn accepts_exceptions() {
    Subject::new("c++", THROWS, &["-O0"]).accepted("-O0");
    let s = Subject::new("c++", THROWS, &["-std=c++14", "-O2"]);
    s.accepted("-O2");
    Subject::learnt(&s.original, 1).expect("rewrite").accepted("learnt");
}

#[test]
fn accepts_outputs_of_the_systems_programs() {
    for name in ["ls", "bash", "perl", "git", "python3.11"] {
        let Ok(original) = std::fs::read(format!("/usr/bin/{name}")) else { continue };
        Subject::of(original).expect("rewrite").accepted(name);
    }
}

#[test]
fn accepts_what_has_learnt() {
    for level in ["-O0", "-O1", "-O2", "-O3"] {
        let Subject { original, file } = Subject::new("cc", SOURCE, &[level, "-fno-inline"]);
        for one_in in [1, 2, 7] {
            let s = Subject::learnt(&original, one_in).expect("rewrite");
            s.accepted(level);
            s.view(|view| assert!(tests_of(&view.v.plain).count() > 3));
            if one_in == 1 {
                // Loops that have learnt poll.
                s.view(|view| assert!(view.v.plain.sites.list.iter().any(|s| s.kind == SiteKind::Poll)));
            }
            assert!(s.file == Subject::learnt(&original, one_in).expect("rewrite").file && s.file != file);
        }
    }
    let planted = compiled("cc", "p.c", PLANTED_PROGRAM, &["-O2", "-no-pie"]);
    Subject::learnt(&planted, 1).expect("rewrite").accepted("fixed addresses");
    for name in ["ls", "bash"] {
        let Ok(original) = std::fs::read(format!("/usr/bin/{name}")) else { continue };
        Subject::learnt(&original, 5).expect("rewrite").accepted(name);
    }
}

/// The tag table of tested code is elsewhere than that of guarded code: each kind of code has its runtime.
#[test]
fn finds_the_runtime_of_the_other_kind_of_code() {
    let original = compiled("cc", "p.c", "int main(void) { return 0; }", &["-O1"]);
    for (access, other) in [(AccessMode::Guard, AccessMode::Tests), (AccessMode::Tests, AccessMode::Guard)] {
        for runtime in [access, other] {
            let options = Options { access, ..Options::default() };
            let blob = Blob::of(runtime).expect("a runtime");
            let rewrite = |sink: &mut dyn OutputSink| {
                pipeline::rewrite_with_runtime(&original[..], "p", &options, &LibraryRecord::none(), &blob, sink)
            };
            let file = pipeline::in_memory(rewrite).expect("rewrite").bytes;
            let audit = verify_with(&file, "p", None).expect("audit runs");
            assert_eq!(audit.is_clean(), runtime == access, "{audit}");
            let serves = |o: &Finding| o.reason.contains("serves other programs than this one");
            assert_eq!(audit.open.iter().any(serves), runtime != access, "{audit}");
        }
    }
}
