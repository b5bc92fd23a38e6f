//go:build tools

// Package tools pins the Jaeger server that build.sh compiles.
package tools

import _ "github.com/jaegertracing/jaeger/cmd/jaeger"
