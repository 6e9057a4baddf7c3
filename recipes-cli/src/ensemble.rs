//! Opening the session that the arguments ask for.

use recipes_core::{Session, SessionBuilder};

use crate::arguments::EnsembleArguments;
use crate::failure::{Failure, code};

/// Opens a session; `application` is what its nodes say of their maker.
pub(crate) async fn connect(
    arguments: &EnsembleArguments,
    application: &str,
) -> Result<Session, Failure> {
    let Some(servers) = &arguments.connect else {
        let message = "no servers: give --connect host:port or set ZKLOCK_CONNECT";
        return Err(Failure::new(code::USAGE, message));
    };
    let mut builder = Session::builder()
        .application(application)
        .session_timeout(arguments.session_timeout)
        .connect_timeout(arguments.connect_timeout);
    if let Some(auth) = &arguments.auth {
        builder = builder.auth(&auth.scheme, auth.credentials.as_bytes());
    }
    Ok(secured(builder, arguments)?.connect(servers).await?)
}

#[cfg(not(feature = "tls"))]
#[expect(clippy::unnecessary_wraps, reason = "certificates may be unreadable")]
fn secured(builder: SessionBuilder, _: &EnsembleArguments) -> Result<SessionBuilder, Failure> {
    Ok(builder)
}

#[cfg(feature = "tls")]
fn secured(
    builder: SessionBuilder,
    arguments: &EnsembleArguments,
) -> Result<SessionBuilder, Failure> {
    use zookeeper_client::TlsOptions;

    let tls = &arguments.tls;
    if !tls.tls {
        return Ok(builder);
    }
    let read = |path: &std::path::Path| {
        let unreadable =
            |error| Failure::new(code::USAGE, format!("cannot read {path:?}: {error}"));
        std::fs::read_to_string(path).map_err(unreadable)
    };
    let refused = |error: zookeeper_client::Error| Failure::new(code::USAGE, error.to_string());
    let mut options = TlsOptions::new();
    if let Some(authorities) = &tls.tls_ca {
        options = options
            .with_pem_ca_certs(&read(authorities)?)
            .map_err(refused)?;
    }
    if let Some((certificate, key)) = tls.tls_cert.as_ref().zip(tls.tls_key.as_ref()) {
        options = options
            .with_pem_identity(&read(certificate)?, &read(key)?)
            .map_err(refused)?;
    }
    Ok(builder.tls(options))
}
