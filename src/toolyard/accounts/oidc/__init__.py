"""Sign-in with an OpenID Connect provider: tokens, claims and provisioning of accounts."""
