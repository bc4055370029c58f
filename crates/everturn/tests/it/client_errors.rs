//! Texts of `ClientError`, and which errors are worth a retry.

use everturn::ClientError;
use everturn::providers::ProviderError;

fn instance_id() -> String {
    "order-42".to_owned()
}

#[test]
fn errors_say_what_went_wrong() {
    let texts = [
        (ClientError::Provider(ProviderError::permanent("read", "disk on fire")), "read: disk on fire"),
        (
            ClientError::ManagementNotAvailable,
            "Management features not available - provider doesn't implement ProviderAdmin",
        ),
        (ClientError::InvalidInput { message: "no".into() }, "Invalid input: no"),
        (ClientError::Timeout, "Operation timed out"),
        (
            ClientError::InstanceStillRunning { instance_id: instance_id() },
            "Instance order-42 is still running. Use force=true or cancel first.",
        ),
        (
            ClientError::CannotDeleteSubOrchestration { instance_id: instance_id() },
            "Cannot delete sub-orchestration order-42 directly. Delete the root orchestration instead.",
        ),
        (ClientError::InstanceNotFound { instance_id: instance_id() }, "Instance order-42 not found"),
    ];
    for (error, text) in texts {
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn only_timeouts_and_retryable_store_errors_are_retryable() {
    assert!(ClientError::Timeout.is_retryable());
    assert!(ClientError::from(ProviderError::retryable("read", "busy")).is_retryable());
    assert!(!ClientError::from(ProviderError::permanent("read", "gone")).is_retryable());
    assert!(!ClientError::ManagementNotAvailable.is_retryable());
    assert!(!ClientError::InvalidInput { message: String::new() }.is_retryable());
    assert!(!ClientError::InstanceNotFound { instance_id: instance_id() }.is_retryable());
    assert!(!ClientError::InstanceStillRunning { instance_id: instance_id() }.is_retryable());
    assert!(!ClientError::CannotDeleteSubOrchestration { instance_id: instance_id() }.is_retryable());
}
