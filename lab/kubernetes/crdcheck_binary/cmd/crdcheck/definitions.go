package main

import (
	"context"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	v1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

var (
	scheme = runtime.NewScheme()
	// codecs decode strictly: a field that the version does not know is an error.
	codecs = serializer.NewCodecFactory(scheme, serializer.EnableStrict)
)

func init() {
	install.Install(scheme)
}

// defined returns the definition that a server keeps when it is asked to create this one: decoded,
// defaulted, converted to the internal version, rid of fields whose feature is off, validated (the
// cost of its rules too), and converted back.
func defined(text []byte) (*v1.CustomResourceDefinition, error) {
	decoder := codecs.UniversalDecoder(apiextensions.SchemeGroupVersion)
	decoded, _, err := decoder.Decode(text, nil, nil)
	if err != nil {
		return nil, err
	}
	definition := decoded.(*apiextensions.CustomResourceDefinition)
	strategy := customresourcedefinition.NewStrategy(scheme)
	if err := created(strategy, metav1.NamespaceNone, definition); err != nil {
		return nil, err
	}
	kept := &v1.CustomResourceDefinition{}
	if err := scheme.Convert(definition, kept, nil); err != nil {
		return nil, err
	}
	kept.SetGroupVersionKind(v1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	return kept, nil
}

// created does to the object what a server does before it stores a new one.
func created(strategy rest.RESTCreateStrategy, namespace string, object metaObject) error {
	rest.FillObjectMetaSystemFields(object)
	ctx := request.WithNamespace(context.Background(), namespace)
	return rest.BeforeCreate(strategy, ctx, object)
}

type metaObject interface {
	runtime.Object
	metav1.Object
}
