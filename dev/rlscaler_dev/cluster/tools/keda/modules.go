//go:build modules

// Package modules names the module of which we want the binaries, so that go.mod and go.sum pin it.
package modules

import (
	_ "github.com/kedacore/keda/v2/cmd/adapter"
	_ "github.com/kedacore/keda/v2/cmd/operator"
)
