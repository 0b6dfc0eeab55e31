//go:build tools

// Package tools only pins helm, whose dependencies are others than Kubernetes' own.
package tools

import _ "helm.sh/helm/v3/cmd/helm"
