//go:build tools

// Package tools only pins kwok, whose dependencies are others than Kubernetes' own.
package tools

import _ "sigs.k8s.io/kwok/cmd/kwok"
