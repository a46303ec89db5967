//go:build modules

// Package modules names the module of which we want the binary, so that go.mod and go.sum pin it.
package modules

import _ "helm.sh/helm/v4/cmd/helm"
