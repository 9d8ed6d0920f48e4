//! The start of a session: features, acknowledgements, target description.

use std::collections::BTreeSet;

use crate::client::{Client, ClientOptions};
use crate::connection::{Connection, ConnectionOptions};
use crate::description::{self, DescriptionError, TargetDescription};
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::features::{ANNOUNCED, Features};
use crate::samples::SampleDecoder;
use crate::stream::Stream;

/// Maximum number of documents in a target description.
const MAX_DOCUMENTS: usize = 64;

impl Client {
    /// Connects and performs the handshake: `qSupported`, `QStartNoAckMode` if offered, target.xml.
    /// Does not query the target's state; see [`Client::stop_reason`].
    pub fn connect(endpoint: &Endpoint, options: ClientOptions) -> Result<Client, Error> {
        let stream = endpoint
            .open(options.timeout)
            .map_err(|source| Error::Connect {
                endpoint: endpoint.clone(),
                source,
            })?;
        Client::over(stream, options)
    }

    /// Like [`Client::connect`], on a stream that is already connected.
    pub fn over(stream: impl Into<Stream>, options: ClientOptions) -> Result<Client, Error> {
        let connection = Connection::over(
            stream,
            ConnectionOptions {
                timeout: options.timeout,
                log: options.log,
                ..ConnectionOptions::default()
            },
        )?;
        let mut client = Client {
            connection,
            architecture: None,
            features: Features::default(),
            description: TargetDescription::default(),
            console: None,
            selected: None,
            control: None,
            actions: None,
            running: false,
            extended: false,
            process: None,
            threads: None,
            samples: SampleDecoder::default(),
            lacking: BTreeSet::new(),
        };
        let announced = match options.observe {
            true => format!("{ANNOUNCED};UnspoolObserve+"),
            false => ANNOUNCED.to_owned(),
        };
        client.features = match client.request(announced)?.text() {
            Ok(text) => Features::decode(&text),
            Err(error) if error.is_unsupported() => Features::default(),
            Err(error) => return Err(error),
        };
        if client.features.has("QStartNoAckMode") {
            client.request("QStartNoAckMode")?.ok()?;
            client.connection.end_acks();
        }
        // Like gdb. gdbserver 13 crashes on a request for target.xml without a current thread. A
        // server without a process replies with an error, which means nothing yet.
        let any = match client.features.has("multiprocess") {
            true => "Hgp0.0",
            false => "Hg0",
        };
        // `unspool-stub` gives the reason here if it refuses to serve this client.
        if let Err(error @ Error::Remote { .. }) = client.request(any)?.ok()
            && error.remote_message().is_some()
        {
            return Err(error);
        }
        client.architecture = options.architecture;
        match client.describe() {
            // Without a process (extended mode), there may be no description before run or attach.
            Err(Error::Remote { .. }) => {}
            description => client.description = description?,
        }
        Ok(client)
    }

    /// The server's description. If it cannot be used: the layout of the architecture that the user
    /// named, or else of the architecture that the description names.
    pub(super) fn describe(&mut self) -> Result<TargetDescription, Error> {
        let architecture = self.architecture.clone();
        let builtin = match &architecture {
            None => None,
            Some(name) => Some(TargetDescription::builtin(name).ok_or_else(|| {
                Error::UnknownArchitecture {
                    name: name.to_owned(),
                }
            })?),
        };
        let error = match self.documents() {
            Ok(documents) => match TargetDescription::parse(&documents) {
                Ok(mut description) => {
                    if description.architecture.is_none() {
                        description.architecture = architecture;
                    }
                    return Ok(description);
                }
                Err(DescriptionError::NoRegisters) => {
                    match TargetDescription::architecture_only(&documents) {
                        Some(description) => return Ok(description),
                        None => DescriptionError::NoRegisters.into(),
                    }
                }
                Err(error) => error.into(),
            },
            Err(error) => error,
        };
        match builtin {
            Some(builtin) if !error.is_fatal() => Ok(builtin),
            _ => Err(error),
        }
    }

    /// target.xml and all documents it includes.
    fn documents(&mut self) -> Result<Vec<(String, String)>, Error> {
        if !self.features.has("qXfer:features:read") {
            return Err(Error::NoDescription);
        }
        let mut wanted = vec!["target.xml".to_owned()];
        let mut documents: Vec<(String, String)> = Vec::new();
        while let Some(annex) = wanted.pop() {
            if documents.iter().any(|(a, _)| *a == annex) {
                continue;
            }
            if documents.len() == MAX_DOCUMENTS {
                let limit = MAX_DOCUMENTS;
                return Err(DescriptionError::TooDeep { annex, limit }.into());
            }
            let bytes = self.transfer("features", &annex)?;
            let document = String::from_utf8_lossy(&bytes).into_owned();
            wanted.extend(description::includes(&annex, &document)?.into_iter().rev());
            documents.push((annex, document));
        }
        Ok(documents)
    }
}
