//go:build tools

// Package tools only pins metrics-server, whose dependencies are others than Kubernetes' own.
package tools

import _ "sigs.k8s.io/metrics-server/cmd/metrics-server"
