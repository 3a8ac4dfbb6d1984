//! The hand-written bindings against the headers of UCX and PMIx: sizes, offsets, values.

use blizzard_carrier::job::pmix;
use blizzard_carrier::ucx::bindings as ours;
use blizzard_test_harness::needs::need_file;
use blizzard_test_harness::tool;
use std::fmt::Write;
use std::mem::{offset_of, size_of};

blizzard_test_harness::tests! { bindings_are_what_the_header_says, what_is_used_of_pmix_is_what_its_header_says }

/// What C says of an expression, and what it is here.
fn expected() -> Vec<(String, i64)> {
    let mut all = Vec::new();
    macro_rules! layout {
        ($c:literal is $rust:ident { $($field:literal is $ours:ident),* }) => {
            all.push((format!("sizeof({})", $c), size_of::<ours::$rust>() as i64));
            $(all.push((format!("offsetof({}, {})", $c, $field), offset_of!(ours::$rust, $ours) as i64));)*
        };
    }
    macro_rules! values {
        ($($c:literal is $ours:ident),*) => { $(all.push(($c.to_owned(), ours::$ours as i64));)* };
    }
    layout!("ucp_params_t" is Params {
        "field_mask" is field_mask, "features" is features, "request_size" is request_size,
        "mt_workers_shared" is mt_workers_shared, "estimated_num_eps" is estimated_num_eps
    });
    layout!("ucp_worker_params_t" is WorkerParams {
        "field_mask" is field_mask, "thread_mode" is thread_mode, "cpu_mask" is cpu_mask, "events" is events,
        "flags" is flags, "client_id" is client_id
    });
    layout!("ucp_err_handler_t" is ErrorHandler { "cb" is callback, "arg" is argument });
    layout!("ucp_ep_params_t" is EndpointParams {
        "field_mask" is field_mask, "address" is address, "err_mode" is err_mode, "err_handler" is err_handler,
        "user_data" is user_data, "flags" is flags
    });
    layout!("ucp_am_recv_param_t" is AmReceived { "recv_attr" is recv_attr, "reply_ep" is reply_ep });
    layout!("ucp_am_handler_param_t" is AmHandlerParams {
        "field_mask" is field_mask, "id" is id, "flags" is flags, "cb" is callback, "arg" is argument
    });
    layout!("ucp_request_param_t" is RequestParams {
        "op_attr_mask" is op_attr_mask, "flags" is flags, "request" is request, "cb" is callback,
        "datatype" is datatype, "user_data" is user_data, "memh" is memh
    });
    values! {
        "UCS_OK" is OK, "UCS_INPROGRESS" is IN_PROGRESS, "UCS_ERR_BUSY" is ERR_BUSY, "UCS_ERR_LAST" is ERR_LAST,
        "UCP_PARAM_FIELD_FEATURES" is PARAM_FIELD_FEATURES,
        "UCP_PARAM_FIELD_ESTIMATED_NUM_EPS" is PARAM_FIELD_ESTIMATED_NUM_EPS,
        "UCP_FEATURE_WAKEUP" is FEATURE_WAKEUP, "UCP_FEATURE_AM" is FEATURE_AM,
        "UCP_WORKER_PARAM_FIELD_THREAD_MODE" is WORKER_PARAM_FIELD_THREAD_MODE,
        "UCS_THREAD_MODE_SINGLE" is THREAD_MODE_SINGLE,
        "UCP_EP_PARAM_FIELD_REMOTE_ADDRESS" is EP_PARAM_FIELD_REMOTE_ADDRESS,
        "UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE" is EP_PARAM_FIELD_ERR_HANDLING_MODE,
        "UCP_EP_PARAM_FIELD_ERR_HANDLER" is EP_PARAM_FIELD_ERR_HANDLER,
        "UCP_ERR_HANDLING_MODE_PEER" is ERR_HANDLING_MODE_PEER,
        "UCP_AM_HANDLER_PARAM_FIELD_ID" is AM_HANDLER_PARAM_FIELD_ID,
        "UCP_AM_HANDLER_PARAM_FIELD_FLAGS" is AM_HANDLER_PARAM_FIELD_FLAGS,
        "UCP_AM_HANDLER_PARAM_FIELD_CB" is AM_HANDLER_PARAM_FIELD_CB,
        "UCP_AM_HANDLER_PARAM_FIELD_ARG" is AM_HANDLER_PARAM_FIELD_ARG,
        "UCP_AM_FLAG_WHOLE_MSG" is AM_FLAG_WHOLE_MSG, "UCP_AM_RECV_ATTR_FLAG_RNDV" is AM_RECV_ATTR_FLAG_RNDV,
        "UCP_OP_ATTR_FIELD_FLAGS" is OP_ATTR_FIELD_FLAGS, "UCP_AM_SEND_FLAG_EAGER" is AM_SEND_FLAG_EAGER,
        "UCP_EP_CLOSE_FLAG_FORCE" is EP_CLOSE_FLAG_FORCE
    }
    all
}

/// What C says of these expressions is what they are here.
fn compare(header: &str, flags: &[&str], expected: &[(String, i64)]) {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("layout.c"), folder.path().join("layout"));
    let mut text = format!(
        "#include <{header}>\n#include <stddef.h>\n#include <stdio.h>\n#include <string.h>\nint main(void) {{\n"
    );
    for (expression, _) in expected {
        writeln!(text, "printf(\"%lld\\n\", (long long)({expression}));").unwrap();
    }
    std::fs::write(&source, text + "}\n").unwrap();
    assert!(tool("cc").args(flags).arg(&source).arg("-o").arg(&program).status().unwrap().success());
    let said = std::process::Command::new(&program).output().unwrap();
    let said: Vec<i64> = String::from_utf8(said.stdout).unwrap().lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(said.len(), expected.len());
    for ((expression, ours), theirs) in expected.iter().zip(said) {
        assert_eq!(*ours, theirs, "{expression}");
    }
}

fn bindings_are_what_the_header_says() {
    need_file("/usr/include/ucp/api/ucp.h", "libucx-dev");
    compare("ucp/api/ucp.h", &[], &expected());
}

fn what_is_used_of_pmix_is_what_its_header_says() {
    let include = "/usr/lib/x86_64-linux-gnu/pmix2/include";
    need_file(format!("{include}/pmix.h"), "libpmix-dev");
    let mut all: Vec<(String, i64)> = Vec::new();
    for (c, ours) in [
        ("sizeof(pmix_proc_t)", size_of::<pmix::Proc>()),
        ("offsetof(pmix_proc_t, rank)", offset_of!(pmix::Proc, rank)),
        ("sizeof(pmix_value_t)", size_of::<pmix::Value>()),
        ("offsetof(pmix_value_t, data)", offset_of!(pmix::Value, data)),
        ("sizeof(pmix_byte_object_t)", size_of::<pmix::ByteObject>()),
        ("offsetof(pmix_byte_object_t, size)", offset_of!(pmix::ByteObject, size)),
        ("sizeof(pmix_info_t)", size_of::<pmix::Info>()),
        ("offsetof(pmix_info_t, flags)", offset_of!(pmix::Info, flags)),
        ("offsetof(pmix_info_t, value)", offset_of!(pmix::Info, value)),
        ("PMIX_SUCCESS", pmix::SUCCESS as usize),
        ("PMIX_BOOL", pmix::BOOL.into()),
        ("PMIX_STRING", pmix::STRING.into()),
        ("PMIX_UINT32", pmix::UINT32.into()),
        ("PMIX_BYTE_OBJECT", pmix::BYTE_OBJECT.into()),
        ("PMIX_GLOBAL", pmix::GLOBAL.into()),
        ("PMIX_RANK_WILDCARD", pmix::RANK_WILDCARD as usize),
    ] {
        all.push((c.to_owned(), ours as i64));
    }
    for (c, ours) in [
        ("PMIX_JOB_SIZE", pmix::JOB_SIZE),
        ("PMIX_LOCAL_PEERS", pmix::LOCAL_PEERS),
        ("PMIX_COLLECT_DATA", pmix::COLLECT_DATA),
    ] {
        all.push((format!("strcmp({c}, \"{}\")", ours.to_str().unwrap()), 0));
    }
    compare("pmix.h", &["-I", include], &all);
}
