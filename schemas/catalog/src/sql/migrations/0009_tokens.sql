-- Who may do what. The token itself is nowhere: `hash` is the SHA-256 of it, and the four columns after it are what
-- SCRAM-SHA-256 needs (RFC 5802). Views and streams are JSON lists; both are NULL for a token that is not limited.
CREATE TABLE token (
    name             TEXT   NOT NULL PRIMARY KEY,
    role             TEXT   NOT NULL,
    views            TEXT,
    streams          TEXT,
    hash             TEXT   NOT NULL,
    scram_salt       TEXT   NOT NULL,
    scram_iterations BIGINT NOT NULL,
    scram_stored_key TEXT   NOT NULL,
    scram_server_key TEXT   NOT NULL,
    created_at       BIGINT NOT NULL,
    created_by       TEXT   NOT NULL,
    expires_at       BIGINT,
    revoked_at       BIGINT
);
