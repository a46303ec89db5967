//go:build modules

// Package modules names the module of which we want the binary, so that go.mod and go.sum pin it.
package modules

import (
	_ "github.com/traefik/traefik/v3/cmd/traefik"
)
