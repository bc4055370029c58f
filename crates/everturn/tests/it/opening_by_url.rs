//! A provider is opened by its URL.

use everturn::Client;
use everturn::providers::open;

#[tokio::test]
async fn a_sqlite_file_is_opened_by_its_url() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("orders.db").display());
    let provider = open(&url).await.unwrap();
    assert_eq!(provider.name(), "sqlite");
    Client::new(provider).start_orchestration("order-1", "Order", "").await.unwrap();
    // The URL names the same data again.
    let client = Client::new(open(&url).await.unwrap());
    assert!(client.start_orchestration("order-1", "Order", "").await.is_ok());
    assert!(folder.path().join("orders.db").is_file(), "the data is in the file that the URL names");
}

#[tokio::test]
async fn a_database_in_memory_is_opened_by_its_url() {
    assert_eq!(open("sqlite::memory:").await.unwrap().name(), "sqlite");
}

#[tokio::test]
async fn a_url_that_names_no_provider_is_refused_and_not_shown() {
    for url in ["", "orders.db", "mysql://root:hunter2@localhost/orders", "hunter2"] {
        let error = open(url).await.map(|provider| provider.name().to_owned()).unwrap_err();
        assert!(!error.is_retryable(), "{url}: {error}");
        let text = error.to_string();
        assert!(
            text.contains("sqlite:") && text.contains("postgres://"),
            "{text} should say what is possible"
        );
        assert!(!text.contains("hunter2"), "{text} shows a secret");
    }
}

#[tokio::test]
async fn a_sqlite_url_that_is_not_understood_says_what_is() {
    let error = open("sqlite:orders.db?mode=fast").await.map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("mode=rwc"), "{error}");
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn a_server_that_does_not_answer_is_named_without_the_password() {
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for scheme in ["postgres", "postgresql"] {
        let url = format!("{scheme}://shop:hunter2@127.0.0.1:{port}/orders");
        let error = open(&url).await.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("127.0.0.1/orders"), "{error} should say which server");
        assert!(!error.contains("hunter2"), "{error} shows the password");
    }
}

#[cfg(not(feature = "postgres"))]
#[tokio::test]
async fn a_missing_feature_is_named() {
    let error = open("postgres://localhost/orders").await.map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("feature \"postgres\""), "{error}");
}
