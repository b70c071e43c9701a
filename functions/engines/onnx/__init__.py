"""The engine that runs ONNX files on ONNX Runtime, as a plug-in."""
