//! The hand-written bindings against UCX's header: sizes, offsets, values.

use blizzard_carrier::ucx::bindings as ours;
use blizzard_test_harness::needs::need_file;
use blizzard_test_harness::tool;
use std::fmt::Write;
use std::mem::{offset_of, size_of};

blizzard_test_harness::tests! { bindings_are_what_the_header_says }

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

fn bindings_are_what_the_header_says() {
    need_file("/usr/include/ucp/api/ucp.h", "libucx-dev");
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("layout.c"), folder.path().join("layout"));
    let expected = expected();
    let mut text = "#include <ucp/api/ucp.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n".to_owned();
    for (expression, _) in &expected {
        writeln!(text, "printf(\"%lld\\n\", (long long)({expression}));").unwrap();
    }
    std::fs::write(&source, text + "}\n").unwrap();
    assert!(tool("cc").arg(&source).arg("-o").arg(&program).status().unwrap().success());
    let said = std::process::Command::new(&program).output().unwrap();
    let said: Vec<i64> = String::from_utf8(said.stdout).unwrap().lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(said.len(), expected.len());
    for ((expression, ours), theirs) in expected.iter().zip(said) {
        assert_eq!(*ours, theirs, "{expression}");
    }
}
