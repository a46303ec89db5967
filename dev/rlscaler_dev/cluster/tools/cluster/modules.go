//go:build modules

// Package modules names the modules of which we want files, not binaries, so that go.mod and go.sum pin them.
package modules

import (
	_ "sigs.k8s.io/gateway-api/apis/v1"
)
