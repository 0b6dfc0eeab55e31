//go:build tools

// Package tools only pins Kueue, beside whose admissions ours are compared.
package tools

import _ "sigs.k8s.io/kueue/cmd/kueue"
